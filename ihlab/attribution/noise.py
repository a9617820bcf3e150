"""Corrupt prompts with noise on the embedding of one earlier token, without exchanging any token."""

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ihlab.interp.head_model import HeadModel
from ihlab.interp.prompt_pair import PromptPair
from tasks.config import require

NOISE = {"noise-0.5": 0.5, "noise-1": 1.0, "noise-3": 3.0}
"""Corruptions by noise, and the noise's standard deviation in units of that of the token
embeddings.
"""


class _Noisy(nn.Embedding):
    """An embedding with extra ids after its vocabulary: each stands for a token plus its own noise
    vector.
    """

    tokens: Int[Tensor, " noisy"]
    noise: Float[Tensor, "noisy d_model"]

    def forward(self, ids: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        further = ids >= len(self.weight)
        which = (ids - len(self.weight)).clamp_min(0)
        plain = super().forward(torch.where(further, self.tokens[which], ids))
        return plain + torch.where(further[..., None], self.noise[which], 0)


@torch.no_grad()
def noisy(
    model: HeadModel, pair: PromptPair, size: float
) -> tuple[HeadModel, Int[Tensor, "batch pos"]]:
    """Return a copy of a model, and corrupted prompts for it: the token at `pair.earlier` has a
    noisy embedding.

    Meng et al. 2022 (arXiv 2202.05262), who take 3 standard deviations and the tokens of the
    subject. Each noisy embedding has its own id, d_vocab + the prompt's index. Weights and the
    logits' vocabulary stay the same. Raises `ConfigError` for a model whose embedding is no
    `torch.nn.Embedding`.
    """
    require(
        isinstance(model.embed, nn.Embedding),
        f"The embedding of the {model.name} is a {type(model.embed).__name__}, but noise needs a torch.nn.Embedding.",
    )
    copied = deepcopy(model)
    embed: Any = copied.embed
    rows, generator = torch.arange(len(pair.clean)), torch.Generator().manual_seed(0)
    noise = torch.randn(len(rows), embed.weight.shape[1], generator=generator).to(embed.weight)
    embed.register_buffer("noise", noise * size * embed.weight.std(), persistent=False)
    embed.register_buffer(
        "tokens", pair.clean[rows, pair.earlier].to(embed.weight.device), persistent=False
    )
    embed.__class__ = type(f"Noisy{type(embed).__name__}", (_Noisy, type(embed)), {})
    corrupted = pair.clean.clone()
    corrupted[rows, pair.earlier] = embed.num_embeddings + rows
    embed.num_embeddings += len(rows)
    return copied, corrupted
