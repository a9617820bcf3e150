"""The model that a run starts from."""

import torch

from ihlab.model.transformer import Transformer
from ihlab.training.config import RunConfig


@torch.no_grad()
def initial_model(config: RunConfig) -> Transformer:
    """Return the model initialised from its seed; `init_shift` (a1, b1) sets alpha and beta of every head.

    Column 0 of every row of alpha is then a1, and the other columns share 1 - a1 equally, as in a fresh `TokenShift`
    (window 2: alpha2 = 1 - alpha1); likewise for beta. All other weights are unchanged.
    """
    model = Transformer(config.model, seed=config.seed)
    if config.init_shift is not None:
        for block in model.layers:
            for weight, own in zip((block.attn.alpha, block.attn.beta), config.init_shift, strict=True):
                weight[:, 0] = own
                weight[:, 1:] = (1 - own) / (weight.shape[1] - 1)
    return model
