"""The vectors of earlier tokens, which shifts and convolutions mix in: 0 before a sequence or a
packed document.
"""

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F

from ihlab.model.documents import Documents
from ihlab.model.kv_cache import Past


def shifted(
    x: Shaped[Tensor, "batch pos *wide"], before: Tensor | Past | None = None, back: int = 1
) -> Shaped[Tensor, "batch pos *wide"]:
    """Return the vector or id `back` tokens before each token; 0 if that is before its sequence or
    document.
    """
    moved = F.pad(x, (*[0, 0] * (x.ndim - 2), back, -back))
    if not isinstance(before, Documents):
        return moved
    same = before.number == F.pad(before.number, (back, -back), value=-1)
    return moved * same.reshape(*same.shape, *[1] * (x.ndim - 2)).to(x.dtype)


def previous(
    x: Shaped[Tensor, "batch pos *wide"],
    before: Shaped[Tensor, "batch 1 *wide"] | Past | None = None,
) -> Shaped[Tensor, "batch pos *wide"]:
    """Return `shifted(x)`, with the vector `before` as the first one if x continues sequences of a
    cache.
    """
    if isinstance(before, Tensor):
        return torch.cat([before, x[:, :-1]], dim=1)
    return shifted(x, before)


def with_first(
    unmixed: Shaped[Tensor, "batch pos *wide"],
    mixed: Shaped[Tensor, "batch pos *wide"],
    cache: Past | None,
) -> Shaped[Tensor, "batch pos *wide"]:
    """Return the mixed vectors, except at the first token of each sequence and document: there the
    unmixed one.
    """
    if not isinstance(cache, Documents):
        return torch.cat([unmixed[:, :1], mixed[:, 1:]], dim=1)
    first = F.pad(cache.number.diff(dim=1) > 0, (1, 0), value=True)
    return torch.where(first.reshape(*first.shape, *[1] * (unmixed.ndim - 2)), unmixed, mixed)
