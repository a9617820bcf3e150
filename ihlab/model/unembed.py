"""Logits without an unembedding."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class FirstEntries(nn.Module):
    """The first d_vocab of d_model entries, as they are.

    As in Sanford et al. (2024, arXiv 2402.09268): the final hidden state of GPT-2 is read as logits, all of it,
    so with d_vocab = d_model. `weight` [d_vocab, d_model], rows of the identity, is W_U in TransformerLens' interface.
    """

    weight: Tensor

    def __init__(self, d_model: int, d_vocab: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.eye(d_vocab, d_model), persistent=False)

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_vocab"]:
        """The logits of every row."""
        return x[..., : len(self.weight)]
