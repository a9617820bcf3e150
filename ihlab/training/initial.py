"""The model that a run starts from."""

from ihlab.model.transformer import Transformer
from ihlab.training.config import RunConfig


def initial_model(config: RunConfig) -> Transformer:
    """Return the model with its seed's weights; with `init_shift` (a1, b1), alpha and beta of every head start from it.

    Column 0 of every row of alpha is then a1, and the others follow by `ihlab.model.shift.start` (window 2:
    alpha2 = 1 - alpha1); of beta likewise. All other weights are as without.
    """
    model = Transformer(config.model, seed=config.seed)
    if config.init_shift is not None:
        for block in model.layers:
            for shift, own in zip((block.attn.key_shift, block.attn.value_shift), config.init_shift, strict=True):
                assert shift is not None  # `RunConfig` has seen to it
                shift.restart(own)
    return model
