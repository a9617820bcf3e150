"""The simplified model of Theorem 3.4 at finite width, with random embeddings. As width grows, it
tends to "exact".
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ihlab.runtime.settings import own_settings
from ihlab.theory.landscape.forms import Numbers, checked
from tasks.config import require

_NUMBERS_AT_A_TIME = 2**23  # of float64: 64 MiB


class Simulated(NamedTuple):
    """The mean loss over random embeddings and its standard error, each of the parameters' shape."""

    loss: Float[np.ndarray, "..."]
    error: Float[np.ndarray, "..."]


@own_settings()
def simulate(
    alpha1: Numbers,
    alpha2: Numbers,
    beta1: Numbers,
    beta2: Numbers,
    n_tokens: int,
    d_model: int | None,
    samples: int = 1000,
    seed: int = 0,
    repeat: int = 2,
) -> Simulated:
    """Return the simplified model's loss, averaged over `samples` embeddings with i.i.d. N(0, 1 /
    d_model) entries.

    `d_model` None means orthonormal embeddings, the limit: one sample, no error. `repeat` is i, the
    position that the last token repeats. Raises `ConfigError` unless 1 < i < T - 1, for T below 5,
    fewer than 2 samples, and parameters that are not finite.
    """
    require(
        d_model is None or samples >= 2, f"samples is {samples}, but an error bar needs at least 2."
    )
    parameters = checked((alpha1, alpha2, beta1, beta2))
    grid = np.stack(np.broadcast_arrays(*parameters.values()))
    points = torch.from_numpy(grid.reshape(4, -1))  # [4, point]
    products = inner_products(n_tokens, d_model, samples, seed)
    size = max(1, _NUMBERS_AT_A_TIME // (len(products) * n_tokens))
    with torch.no_grad():
        chunks = [simulated_loss(chunk, products, repeat) for chunk in points.split(size, dim=1)]
    losses = torch.cat(chunks).numpy()
    error = np.zeros(len(losses))
    if len(products) > 1:
        error = losses.std(axis=1, ddof=1) / len(products) ** 0.5
    shape = grid.shape[1:]
    return Simulated(losses.mean(axis=1).reshape(shape), error.reshape(shape))


def inner_products(
    n_tokens: int, d_model: int | None, samples: int, seed: int
) -> Float[Tensor, "sample T T"]:
    """Return u_i . u_j of random embeddings u (the model depends only on these), or the identity if
    d_model is None.
    """
    require(n_tokens >= 5, f"n_tokens is {n_tokens}, but must be at least 5.")
    if d_model is None:
        return torch.eye(n_tokens, dtype=torch.float64)[None]
    require(d_model >= 1, f"d_model is {d_model}, but must be at least 1.")
    generator = torch.Generator().manual_seed(seed)
    products = torch.empty(samples, n_tokens, n_tokens, dtype=torch.float64)
    for sample in products:  # one at a time: all embeddings together may exceed memory
        u = torch.randn(n_tokens, d_model, generator=generator, dtype=torch.float64)
        sample.copy_(u @ u.T / d_model)
    return products


def simulated_loss(
    parameters: Float[Tensor, "4 point"], products: Float[Tensor, "sample T T"], repeat: int
) -> Float[Tensor, "point sample"]:
    """Return the loss of real attention for each point (alpha1, alpha2, beta1, beta2) and
    embedding; differentiable.
    """
    n_tokens = products.shape[-1]
    require(
        1 < repeat < n_tokens - 1,
        f"repeat is {repeat}, but must lie between 2 and n_tokens - 2 = {n_tokens - 2}: at an edge x_i lacks a "
        "neighbour, and the loss has another formula.",
    )
    alpha1, alpha2, beta1, beta2 = parameters[:, :, None, None]
    row = [*range(n_tokens), repeat - 1]  # x_1 .. x_T, x_i
    now = products[:, :, row]  # [sample, vocab, key]
    before = torch.nn.functional.pad(now[..., :-1], (1, 0))
    pattern = (alpha1 * now[:, repeat - 1] + alpha2 * before[:, repeat - 1]).softmax(
        dim=-1
    )  # [point, sample, key]
    read_own = torch.einsum("svk,psk->psv", now, pattern)
    read_before = torch.einsum("svk,psk->psv", before, pattern)
    logits = beta1 * read_own + beta2 * read_before
    return logits.logsumexp(dim=-1) - logits[..., repeat]  # x_{i+1} has index i
