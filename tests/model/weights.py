"""Weights of one model in another."""

import torch


@torch.no_grad()
def alike(model, other):
    """Give `other` the weights of `model` where both have them."""
    given = dict(model.named_parameters())
    for name, weight in other.named_parameters():
        if name in given:
            weight.copy_(given[name])
