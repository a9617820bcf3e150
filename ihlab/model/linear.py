"""Linear maps that may have no bias, and logits without an unembedding."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def bias_of(linear: nn.Linear) -> Float[Tensor, " out"]:
    """Return the bias of a linear map; zeros if it has none, as in TransformerLens."""
    return linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias


class FirstEntries(nn.Module):
    """A module that returns the first d_vocab of d_model entries unchanged.

    Sanford et al. (2024, arXiv 2402.09268) use the whole final hidden state of GPT-2 as logits, with d_vocab = d_model.
    `weight` [d_vocab, d_model], rows of the identity, is W_U in TransformerLens' interface.
    """

    weight: Tensor

    def __init__(self, d_model: int, d_vocab: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.eye(d_vocab, d_model), persistent=False)

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_vocab"]:
        """Return the logits of every position."""
        return x[..., : len(self.weight)]
