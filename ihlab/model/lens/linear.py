"""Embeddings and unembedding with TransformerLens' weight names, and logits without an unembedding."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def bias_of(linear: nn.Linear) -> Float[Tensor, " out"]:
    """Return the bias of a linear map; zeros if it has none, as in TransformerLens."""
    if linear.bias is None:
        return linear.weight.new_zeros(linear.out_features)
    return linear.bias


class TokenEmbedding(nn.Embedding):
    """The embedding of tokens. `W_E` is its weight's name in TransformerLens."""

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """The embedding of each token."""
        return self.weight


class PositionEmbedding(nn.Embedding):
    """The embedding of learned positions. `W_pos` is its weight's name in TransformerLens."""

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """The embedding of each position."""
        return self.weight


class _Unembeds:
    """`W_U` and `b_U`, the names of an unembedding's weights in TransformerLens."""

    weight: Tensor

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The transposed weight."""
        return self.weight.T

    @property
    def b_U(self) -> Float[Tensor, " d_vocab"]:
        """Zeros: there is no bias. The bias of a final LayerNorm is part of `ln_final`."""
        return torch.zeros_like(self.weight[:, 0])


class Unembedding(_Unembeds, nn.Linear):
    """The unembedding, without a bias."""

    def __init__(self, d_model: int, d_vocab: int) -> None:
        super().__init__(d_model, d_vocab, bias=False)


class FirstEntries(_Unembeds, nn.Module):
    """A module that returns the first d_vocab of d_model entries unchanged.

    Sanford et al. (2024, arXiv 2402.09268) use the whole final hidden state of GPT-2 as logits,
    with d_vocab = d_model. `weight` [d_vocab, d_model], rows of the identity, is W_U in
    TransformerLens' interface.
    """

    def __init__(self, d_model: int, d_vocab: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.eye(d_vocab, d_model), persistent=False)

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_vocab"]:
        """Return the logits of every position."""
        return x[..., : len(self.weight)]
