"""Transformers with hand-set weights that realise the theorems: oracles for tests and for
`ihlab.interp`.

All have one head per layer, no norm, MLP or bias, tied embeddings, and float64 weights. The rows of
`embedding` [vocab, d] are the x of the theorems. One-hot rows (`torch.eye(vocab)`) are orthonormal,
so that the logits of a head with sharp attention are one-hot.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.runtime.settings import own_settings
from tasks.config import require


@torch.no_grad()
@own_settings()
def shifted_head(
    embedding: Float[Tensor, "vocab d"],
    n_ctx: int,
    alpha: Sequence[float],
    beta: Sequence[float],
    sigma: float = 1.0,
    slope: float = 0.0,
    mask: Literal["causal", "strict"] = "causal",
) -> Transformer:
    """Return one KV shifting head with W_q = W_k = W_v = W_o = I and nothing else, not even a
    residual connection:

        out_t = sum over s <= t (strict: s < t) of softmax_s(x_t . k_s / sigma - slope (t - s)) v_s,
        k_s = alpha1 x_s + alpha2 x_{s-1},  v_s = beta1 x_s + beta2 x_{s-1},  x_0 = 0.

    The simplified model of Theorem 3.4 has sigma = 1. Its proof omits the 1/sqrt(D) of equation 6;
    with that factor, every score would vanish as d grows. Raises `ConfigError` for sigma <= 0, and
    unless alpha and beta have two numbers each.
    """
    require(
        len(alpha) == len(beta) == 2,
        f"alpha is {alpha} and beta is {beta}: each needs two numbers.",
    )
    require(sigma > 0, f"sigma is {sigma}, but must be positive.")
    vocab, d = embedding.shape
    sizes = {"n_layers": 1, "d_model": d, "d_vocab": vocab, "n_ctx": n_ctx}
    cfg = _bare((slope,), attention="kv_shift", residual=False, mask=mask, **sizes)
    model = Transformer(cfg).double()
    attn = model.layers[0].attn
    model.embed.weight.copy_(embedding)
    for weight in (attn.k_proj.weight, attn.v_proj.weight, attn.o_proj.weight):
        weight.copy_(torch.eye(d))
    attn.q_proj.weight.copy_(
        torch.eye(d, dtype=torch.float64) * d**0.5 / sigma
    )  # attention divides scores by sqrt(d_head)
    attn.alpha.copy_(torch.tensor([list(alpha)], dtype=torch.float64))
    attn.beta.copy_(torch.tensor([list(beta)], dtype=torch.float64))
    return model.eval()


def kv_shift_induction_head(
    embedding: Float[Tensor, "vocab d"],
    n_ctx: int,
    sigma: float,
    slope: float,
    mask: Literal["causal", "strict"] = "causal",
) -> Transformer:
    """Return the one layer of Theorem 3.3, which equals `IH`: alpha = (0, 1), beta = (1, 0) and
    ALiBi's slope.

    With the causal mask it equals `IH(keys="all")`, with the strict mask `IH(keys="earlier")`. For
    the printed range s = 2 .. L - 1, also hide key 1, by -inf at `hook_attn_scores`. The printed
    proof has "beta_0 = 1/sigma, beta_2 = 0", but 1/sigma belongs to the scores, as here, not to the
    values.
    """
    return shifted_head(
        embedding, n_ctx, alpha=(0.0, 1.0), beta=(1.0, 0.0), sigma=sigma, slope=slope, mask=mask
    )


def meta_learner(
    embedding: Float[Tensor, "vocab d"], n_ctx: int, temperature: float
) -> Transformer:
    """Equation 11, the key shift alone: from the pairs (k_1, v_2) ... (k_{n-1}, v_n), infer v_{n+1}
    for k_n.

        out_n = sum over s = 1 .. n of softmax_s(k_n . k_{s-1} / temperature) v_s,  k_0 = 0.

    The paper prints v_i instead of v_{i+1}, which would return v_n, and omits s = 1.
    """
    return shifted_head(embedding, n_ctx, alpha=(0.0, 1.0), beta=(1.0, 0.0), sigma=temperature)


def checker(embedding: Float[Tensor, "vocab d"], n_ctx: int, temperature: float) -> Transformer:
    """Equation 12, the value shift alone: read the token before earlier copies of the (guessed)
    last token.

        out_{n+1} = sum over s = 1 .. n of softmax_s(k_{n+1} . k_s / temperature) v_{s-1},  v_0 = 0.

    If the output is the real v_n, the guess is kept. The paper prints s up to n - 1. The mask must
    be strict: a token that sees itself matches itself best, reads the real v_n beside it, and
    accepts every guess.
    """
    return shifted_head(
        embedding, n_ctx, alpha=(1.0, 0.0), beta=(0.0, 1.0), sigma=temperature, mask="strict"
    )


@torch.no_grad()
@own_settings()
def two_layer_induction_head(
    embedding: Float[Tensor, "vocab d"],
    n_ctx: int,
    sigma: float,
    slope: float,
    first_slope: float,
    mask: Literal["causal", "strict"] = "strict",
) -> Transformer:
    """Theorem 3.2: two vanilla layers of width 2d that approximate `IH(keys="earlier")`.

    The residual stream holds (x_s, 0). Layer 1, with W_q = W_k = 0 and ALiBi slope p =
    `first_slope`, writes the average of the past y_s = sum over r < s of softmax_r(-p (s - 1 - r))
    x_r, mostly x_{s-1}, into the second half and keeps x_s in the first. Layer 2, without residual,
    matches x_L with y_s and copies x_s. For x in [-1, 1]^d and p > 0 the largest entry of the error
    is, up to rounding, at most 4 d / sigma * e^{-p} / (1 - e^{-p}) (Appendix A, second to last
    line). The proof's layer 1 does not see its own token (its sum ends at s - 1): with
    mask="causal" y_s tends to x_s, not x_{s-1}, and the error does not fall.
    """
    require(sigma > 0, f"sigma is {sigma}, but must be positive.")
    vocab, d = embedding.shape
    sizes = {"n_layers": 2, "d_model": 2 * d, "d_vocab": vocab, "n_ctx": n_ctx}
    cfg = _bare(
        (first_slope, slope), attention="vanilla", residual=(True, False), mask=mask, **sizes
    )
    model = Transformer(cfg).double()
    for weight in model.parameters():
        weight.zero_()
    model.embed.weight[:, :d] = embedding
    one, two = (layer.attn for layer in model.layers)
    first, second, eye = slice(0, d), slice(d, 2 * d), torch.eye(d, dtype=torch.float64)
    one.v_proj.weight[second, first] = eye
    two.q_proj.weight[first, first] = eye * (2 * d) ** 0.5 / sigma
    two.k_proj.weight[first, second] = eye
    two.v_proj.weight[first, first] = eye
    for attn in (one, two):
        attn.o_proj.weight.copy_(torch.eye(2 * d))
    return model.eval()


def _bare(slopes: tuple[float, ...], **fields: Any) -> ModelConfig:
    """Return the config of an attention-only model with one head per layer. Slopes of 0 stand for
    no positions.
    """
    fields["positional"] = "none"
    if any(slopes):
        fields |= {"positional": "alibi", "alibi_slopes": slopes}
    return ModelConfig(n_heads=1, norm="none", mlp="none", tied_embeddings=True, **fields)
