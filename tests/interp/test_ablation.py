"""Ablation against the model's own parts: a head without output, z replaced by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ihlab.interp import locate_induction_heads
from ihlab.interp.ablation import ablate_heads, ablate_together, ablation_sweep, replacement
from tasks import IGNORE, Batch, ConfigError, InductionTask
from tests.interp.conftest import N_CTX


@torch.no_grad()
def by_hand(model, batch, values):
    """Loss and accuracy with the z of heads (layer, head) set to `values`."""
    hooks = []
    for (layer, head), value in values.items():

        def put(z, hook, head=head, value=value):
            z[:, :, head] = value
            return z

        hooks.append((f"blocks.{layer}.attn.hook_z", put))
    logits = model.run_with_hooks(torch.from_numpy(batch.inputs.copy()), fwd_hooks=hooks)
    targets = torch.from_numpy(batch.targets.copy())
    hits = logits.argmax(-1).numpy() == batch.answers
    return {
        "loss": F.cross_entropy(logits.mT, targets, ignore_index=IGNORE).item(),
        "accuracy": hits[batch.answers != IGNORE].mean(),
    }


@pytest.fixture(scope="module")
def model(make_model):
    return make_model()


def test_resampling_takes_other_sequences_at_the_same_position():
    """A shorter sequence gives its last token where it has no other."""
    z = torch.arange(6.0)[:, None, None, None] + torch.linspace(0, 0.9, 9)[:, None, None]
    sources = replacement(z, "resample", seed=4)[:, 0, 0, 0].long()
    assert sorted(sources.tolist()) == list(range(6))
    assert (sources != torch.arange(6)).all()
    assert not torch.equal(z[sources], replacement(z, "resample", seed=5))
    real = torch.arange(9) < torch.tensor([9, 4, 9, 4, 9, 4])[:, None]
    cut = replacement(z, "resample", seed=4, real=real)
    for row, source in enumerate(sources.tolist()):
        size = int(real[source].sum())
        assert torch.equal(cut[row, :size], z[source, :size])
        assert (cut[row, size:] == z[source, size - 1]).all()


def test_the_ablated_head_has_the_values_put_in_by_hand(model, batch):
    """The mean is one vector over sequences and positions. Targets and answers count apart."""
    batch = replace(batch, answers=np.where(np.arange(N_CTX) % 2, batch.answers, IGNORE))
    _, cache = model.run_with_cache(torch.from_numpy(batch.inputs.copy()))
    z = cache["z", 0][:, :, 3]
    values = {
        "zero": torch.zeros_like(z),
        "mean": z.mean(dim=(0, 1)),
        "resample": replacement(cache["z", 0], "resample", seed=4)[:, :, 3],
    }
    whole = by_hand(model, batch, {})
    assert ablate_heads(model, batch, []) == pytest.approx(whole)
    for how, value in values.items():
        right = by_hand(model, batch, {(0, 3): value})
        assert ablate_heads(model, batch, [(0, 3)], how, seed=4) == pytest.approx(right)
        row = ablation_sweep(model, batch, how, seed=4).loc[3]
        assert (row["layer"], row["head"]) == (0, 3)
        assert row["loss_rise"] == pytest.approx(right["loss"] - whole["loss"])
        assert row["accuracy_fall"] == pytest.approx(whole["accuracy"] - right["accuracy"])
    # The mean of a later head is that of the whole model, also if an earlier head is ablated too.
    means = {(layer, 1): cache["z", layer][:, :, 1].mean(dim=(0, 1)) for layer in range(2)}
    assert ablate_heads(model, batch, [*means]) == pytest.approx(by_hand(model, batch, means))


def test_hooks_are_gone_afterwards(model, batch, tokens):
    before = model(tokens)
    ablation_sweep(model, batch, "zero")
    with pytest.raises(ConfigError):
        ablate_heads(model, batch, [(0, 0), (7, 0)])
    assert torch.equal(model(tokens), before)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


# Together


def test_the_sets_are_as_large_and_their_losses_those_of_ablating_them(make_model, batch):
    model = make_model(n_layers=3)
    these = [(0, 1), (2, 0), (2, 3), (0, 1)]
    table = ablate_together(model, batch, np.array(these), controls=2, seed=3)
    assert table["heads"].tolist() == ["these", "random", "same layers", "random", "same layers"]
    assert table["n"].tolist() == [3] * 5
    right = ablate_heads(model, batch, these)
    assert table["loss"][0] == pytest.approx(right["loss"])
    rise = right["loss"] - ablate_heads(model, batch, [])["loss"]
    assert table["loss_rise"][0] == pytest.approx(rise)


def test_the_head_that_knows_the_answers_is_found_by_its_absence(theorem_3_2, batch):
    located = locate_induction_heads(theorem_3_2, batch=batch)
    assert located["verdict"].tolist() == ["induction", ""]
    assert (~located["needed"]).tolist() == [not needed for needed in located["needed"]]
    table = ablate_together(theorem_3_2, batch, located)
    assert table["n"][0] == 1
    assert table["loss_rise"][0] > 10 * table["loss_rise_error"][0]
    assert np.isclose(table["loss_rise"][0], located["loss_rise"][0])
    with pytest.raises(ConfigError, match="no head is prefix-matching"):
        ablate_together(theorem_3_2, batch, located[located["head"] > 0])


IGNORED = np.full((64, N_CTX), IGNORE)
WRONG = [
    ({"heads": [(2, 0)]}, r"no head 2\.0: the model has layers 0 to 1 with heads 0 to 3"),
    ({"how": "men"}, "no ablation 'men'; did you mean 'mean'"),
    ({"targets": IGNORED}, "no targets"),
    ({"answers": IGNORED}, "no answers"),
    ({"targets": IGNORED + 93}, "The targets have ids from -7 to -7, but the vocabulary is 0"),
    ({"targets": IGNORED + 140}, "The targets have ids from 40 to 40, but the vocabulary is 0"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_bad_input_is_refused(model, batch, change, message):
    ids = {name: change[name] for name in change.keys() & {"targets", "answers"}}
    with pytest.raises(ConfigError, match=message):
        ablate_heads(
            model, replace(batch, **ids), change.get("heads", [(0, 0)]), change.get("how", "mean")
        )


@pytest.mark.usefixtures("unchecked")
def test_one_sequence_and_other_shapes_are_refused(model, batch):
    with pytest.raises(ConfigError, match="one sequence"):
        ablate_heads(model, batch.rows(0, 1), [(0, 0)], "resample")
    with pytest.raises(ConfigError, match="The batch's targets have the shape"):
        ablate_heads(model, replace(batch, targets=batch.targets[:, :3]), [(0, 0)])


# Padding


def padded(batch, side):
    """Some rows cut short by 5, 10 or 15 tokens and padded with other ids, and the mask."""
    size = batch.inputs.shape[1]
    cut = np.array([0, 5, 10, 15])[np.arange(len(batch.inputs)) % 4]
    inputs, targets = np.full_like(batch.inputs, 3), np.full_like(batch.targets, IGNORE)
    mask = np.zeros_like(inputs)
    for row, less in enumerate(cut):
        at = slice(less, size) if side == "left" else slice(0, size - less)
        inputs[row, at] = batch.inputs[row, : size - less]
        targets[row, at] = batch.targets[row, : size - less]
        mask[row, at] = 1
    return Batch(inputs, targets), mask


def test_padding_is_in_no_mean_on_either_side(model, batch):
    right, mask = padded(batch, "right")
    _, cache = model.run_with_cache(torch.from_numpy(right.inputs))
    mean = cache["z", 1][:, :, 2][torch.from_numpy(mask) == 1].mean(dim=0)
    expected = by_hand(model, right, {(1, 2): mean})
    assert ablate_heads(model, right, [(1, 2)], attention_mask=mask) == pytest.approx(expected)
    assert ablate_heads(model, right, [(1, 2)]) != pytest.approx(expected)
    left, left_mask = padded(batch, "left")
    for how in ("mean", "resample"):
        one = ablation_sweep(model, right, how, attention_mask=mask)
        other = ablation_sweep(model, left, how, attention_mask=left_mask)
        assert np.allclose(one.drop(columns="how"), other.drop(columns="how"))


def test_a_tasks_padding_is_known(make_model, model, batch, task, monkeypatch):
    monkeypatch.setattr(InductionTask, "padding_id", 3, raising=False)
    trained = make_model()
    trained.trained_on = task
    right, mask = padded(batch, "right")
    expected = ablate_heads(model, right, [(0, 1)], attention_mask=mask)
    assert ablate_heads(trained, right, [(0, 1)]) == pytest.approx(expected)


@pytest.mark.parametrize(("shape", "value"), [((256, 257, 1, 1), 0.25), ((16, 128, 1, 1), 40.0)])
def test_means_do_not_overflow_in_half_precision(shape, value):
    z = torch.full(shape, value, dtype=torch.float16)
    assert replacement(z, "mean").unique().tolist() == [value]
