"""Noise as a corruption: the embedding of one earlier token is changed, and no token."""

from copy import deepcopy

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ihlab.interp.head_model import HeadModel
from ihlab.interp.prompt_pair import PromptPair

NOISE = {"noise-0.5": 0.5, "noise-1": 1.0, "noise-3": 3.0}
"""Corruptions by noise, and the noise's standard deviation in those of the token embeddings."""


@torch.no_grad()
def noisy(model: HeadModel, pair: PromptPair, size: float, seed: int = 0) -> tuple[HeadModel, Int[Tensor, "batch pos"]]:
    """Return a copy of a model, and corrupted prompts for it: the token at `pair.earlier` has a noisy embedding.

    Meng et al. 2022 (arXiv 2202.05262), who take 3 standard deviations and the tokens of the subject. The noisy
    embeddings are further rows of the copy's embedding table, so each has an id of its own, d_vocab + prompt. The
    unembedding, and with it the vocabulary of the logits, stays.
    """
    copied = deepcopy(model)
    table: Tensor = copied.embed.weight  # type: ignore[assignment]
    rows, generator = torch.arange(len(pair.clean)), torch.Generator().manual_seed(seed)
    noise = torch.randn(len(rows), table.shape[1], generator=generator).to(table) * size * table.std()
    token = pair.clean[rows, pair.earlier].to(table.device)
    copied.embed.weight = nn.Parameter(torch.cat([table, table[token] + noise]), requires_grad=table.requires_grad)
    copied.embed.num_embeddings = len(table) + len(rows)  # type: ignore[assignment]
    corrupted = pair.clean.clone()
    corrupted[rows, pair.earlier] = len(table) + rows
    return copied, corrupted
