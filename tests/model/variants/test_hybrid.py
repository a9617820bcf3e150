"""The hybrid of the gated delta rule and attention: each layer is what its kind alone would be."""


def test_its_layers_have_the_weights_and_hook_points_of_their_kinds(make):
    hybrid, delta, vanilla = (
        make(attention=name) for name in ("delta_hybrid", "gated_delta", "vanilla")
    )
    for layer, other in enumerate((delta, vanilla)):
        assert names_of(hybrid, layer) == names_of(other, layer)


def names_of(model, layer):
    names = [*model.hook_dict, *model.state_dict()]
    return [name for name in names if name.startswith(f"blocks.{layer}.")]
