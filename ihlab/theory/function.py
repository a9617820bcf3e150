"""The induction heads machine of Definition 3.1, computed from the formula: an oracle, not a
network.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from tasks.config import choose, require

KEYS = {"inner": (2, -1), "earlier": (1, -1), "all": (1, 0)}
"""The first key, counted from 1, and the last key, relative to L."""


def IH(
    x: Float[Tensor, "*batch pos d"], sigma: float, slope: float, keys: str = "inner"
) -> Float[Tensor, "*batch d"]:
    """Return the output of the induction heads machine at the last of L tokens (arXiv 2411.19574,
    Definition 3.1):

        IH(X) = sum over s of softmax_s(x_L . x_{s-1} / sigma - slope (L - s)) x_s.

    It predicts the tokens that followed earlier tokens similar to the last one. `keys` gives the
    range of s, with x_0 = 0, as the shift pads:

    - "inner": s = 2 .. L - 1, as printed;
    - "earlier": s = 1 .. L - 1, what attention with a strict mask sees;
    - "all": s = 1 .. L, what plain causal attention sees. Its first key is zero and its last is
      x_{L-1}.

    Raises `ConfigError` for sigma <= 0, an unknown `keys`, numbers that are not finite, or too few
    tokens.
    """
    require(sigma > 0, f"sigma is {sigma}, but must be positive.")
    first, last = KEYS[choose("set of keys", keys, KEYS)]
    n_pos = x.shape[-2]
    require(
        n_pos + last >= first,
        f"x has {n_pos} tokens, but IH with keys={keys!r} needs {first - last}.",
    )
    before = torch.cat([torch.zeros_like(x[..., :1, :]), x[..., :-1, :]], dim=-2)  # x_{s-1}
    inside = slice(first - 1, n_pos + last)
    distance = torch.arange(n_pos - 1, -1, -1, dtype=x.dtype, device=x.device)
    scores = (before @ x[..., -1, :, None]).squeeze(-1) / sigma - slope * distance
    finite = bool(x.isfinite().all()) and bool(scores.isfinite().all())
    require(finite, "x, slope, or x divided by sigma holds a number that is not finite.")
    return (scores[..., None, inside].softmax(dim=-1) @ x[..., inside, :]).squeeze(-2)
