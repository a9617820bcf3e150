"""Links to the earlier tokens that a token's keys and values may mix in: those of its sequence, without padding."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn import functional as F


class Links(NamedTuple):
    """For each of the next tokens, the places of its earlier tokens.

    Indices count the `window - 1` tokens that a cache stores, followed by the next tokens.

    - `begins`: True if no token came before the next ones;
    - `chain` [batch, pos, window - 1]: whether the 1st, 2nd, ... token back belongs to the same sequence; None: all
      that exist do;
    - `index` [batch, pos, window - 1]: the index of the 1st, 2nd, ... token back; None: they are adjacent;
    - `keep` [batch, window - 1]: indices of the tokens to store in the cache; None: the last ones;
    - `alive` [batch, window - 1]: whether the stored tokens belong to the sequence that continues; None: all do.
    """

    begins: bool
    chain: Bool[Tensor, "batch pos back"] | None = None
    index: Int[Tensor, "batch pos back"] | None = None  # type: ignore[assignment]  # it hides tuple.index
    keep: Int[Tensor, "batch back"] | None = None
    alive: Bool[Tensor, "batch back"] | None = None


def find_links(
    window: int,
    n: int,
    past: int,
    mask: Shaped[Tensor, "batch seen"] | None = None,
    positions: Int[Tensor, "#batch pos"] | None = None,
    starts: Int[Tensor, " documents"] | None = None,
) -> Links:
    """Return the links of the next n tokens, which follow `past` others.

    `mask` is 0 at padding. It covers the next tokens and, if it is longer, earlier ones. Padding is skipped: the
    previous token is the last one that is not padding. A sequence begins where `positions` do not increase by 1, and at
    the token indices in `starts` (cu_seq_lens).
    """
    if mask is not None and (torch.compiler.is_compiling() or not mask.all()):
        return _around_padding(window - 1, n, past, mask.bool(), positions)
    if positions is None and starts is None:
        return Links(past == 0)
    linked = torch.ones(1, n, dtype=torch.bool, device=None if starts is None else starts.device)
    if positions is not None:
        linked = torch.cat([positions[:, :1] > 0, positions.diff() == 1], dim=1)
    if starts is not None:
        linked = linked & ~torch.isin(torch.arange(n, device=starts.device), starts)
    if not torch.compiler.is_compiling() and linked[:, past == 0 :].all():
        return Links(past == 0)
    if past == 0:
        linked = F.pad(linked[:, 1:], (1, 0), value=False)
    columns = [linked]
    for _ in range(2, window):
        columns.append(linked & F.pad(columns[-1][:, :-1], (1, 0), value=True))
    chain = torch.stack(columns, dim=-1)
    return Links(past == 0, chain, alive=_alive(chain[:, -1]))


def _around_padding(
    back: int, n: int, past: int, real: Bool[Tensor, "batch seen"], positions: Int[Tensor, "#batch pos"] | None
) -> Links:
    """Return the links of tokens among padding. The tokens that a cache stores count as real tokens."""
    before, new = (real[:, :-n].any(dim=1), real[:, -n:]) if real.shape[1] > n else (past > 0, real)
    seen = F.pad(new, (back, 0), value=True)
    order = (~seen).long().argsort(dim=1, stable=True)  # real tokens first
    rank = seen.cumsum(dim=1)[:, back:] - new.long()  # number of real tokens before each
    index = torch.stack([order.gather(1, (rank - 1 - j).clamp(min=0)) for j in range(back)], dim=-1)
    within = index[..., 0] >= back
    linked = within | torch.as_tensor(before, device=real.device).view(-1, 1)
    if positions is not None:
        positions = positions.expand(len(real), n)
        previous = positions.gather(1, (index[..., 0] - back).clamp(min=0))
        linked = linked & torch.where(within, positions == previous + 1, positions > 0)
    columns = [linked]
    for _ in range(1, back):
        earlier = F.pad(columns[-1], (back, 0), value=True).gather(1, index[..., 0])
        columns.append(linked & earlier)
    chain = torch.stack(columns, dim=-1)
    newest = seen.sum(dim=1, keepdim=True)
    keep = order.gather(1, newest - back + torch.arange(back, device=real.device))
    last = F.pad(chain, (0, 0, back, 0), value=True)[torch.arange(len(real), device=real.device), keep[:, -1]]
    return Links(past == 0, chain, index, keep, _alive(last))


def _alive(chain: Bool[Tensor, "batch back"]) -> Bool[Tensor, "batch back"]:
    """Return which of the last tokens, oldest first, belong to the sequence of the newest, given the newest's chain."""
    return F.pad(chain[:, :-1], (1, 0), value=True).flip(1)
