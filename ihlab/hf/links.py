"""Links to the earlier tokens that a token's keys and values may mix in: those of its sequence,
without padding.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from tasks.config import require

WENT_BACK = (
    "attention_mask continues an earlier token, whose raw keys and values the cache no longer has. It has those of the "
    "last tokens of a text, and, unless it is static, of all tokens that were read with masks of four dimensions since."
)


class Links(NamedTuple):
    """For each of the next tokens, the indices of the tokens right before it.

    Indices count the tokens whose raw vectors a cache layer returns, followed by the next tokens.

    - `begins`: True if no token came before the next ones;
    - `chain` [batch, pos, window - 1]: whether the 1st, 2nd, ... token back belongs to the same
      sequence; None: every earlier token does;
    - `index` [batch, pos, window - 1]: the index of the 1st, 2nd, ... token back; None: they are
      adjacent;
    - `real` [batch, pos]: whether the token itself is not padding; None: there is no padding;
    - `tree`: whether each of the next tokens may be continued more than once;
    - `numbers` [batch, pos, 1]: which token of the text each is, counted from 1.
    """

    begins: bool
    chain: Bool[Tensor, "#batch pos back"] | None = None
    index: Int[Tensor, "#batch pos back"] | None = None  # type: ignore[assignment]  # it hides tuple.index
    real: Bool[Tensor, "#batch pos"] | None = None
    tree: bool = False
    numbers: Int[Tensor, "batch pos 1"] | None = None

    def stored(
        self, raw_states: Shaped[Tensor, "batch seen channel"], back: int, after: slice
    ) -> Shaped[Tensor, "batch some back channel"]:
        """Return what a cache holds after each of the new tokens in the slice `after`: the last
        vectors, oldest first.

        `raw_states` has the vectors stored before, followed by those of the next tokens. Padding is
        skipped, and a vector of another sequence is 0.
        """
        if self.chain is None:
            return raw_states.unfold(1, back, 1)[:, 1:][:, after].transpose(2, 3)
        chain = self.chain[:, after]
        seen = raw_states.shape[1]
        places = torch.arange(seen - self.chain.shape[1], seen, device=raw_states.device)[
            None, after, None
        ]
        index = (
            places - torch.arange(1, back + 1, device=raw_states.device)
            if self.index is None
            else self.index[:, after]
        )
        newest = torch.cat([places.expand(len(index), -1, -1), index[..., :-1]], dim=2)
        alive = F.pad(chain[..., :-1], (1, 0), value=True)
        if self.real is not None:
            real = self.real[:, after, None]
            newest, alive = torch.where(real, newest, index), torch.where(real, alive, chain)
        states = take(raw_states, newest.flatten(1), alive.flatten(1))
        return states.unflatten(1, newest.shape[1:]).flip(2)


def take(
    raw_states: Shaped[Tensor, "batch seen channel"],
    index: Int[Tensor, "#batch n"],
    keep: Bool[Tensor, "#batch n"] | None,
) -> Shaped[Tensor, "batch n channel"]:
    """Return the vectors at n indices in each sequence; zeros where `keep` is False."""
    places = (
        index + torch.arange(len(raw_states), device=index.device)[:, None] * raw_states.shape[1]
    )
    taken = raw_states.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, places.shape)
    return taken if keep is None else torch.where(keep[..., None], taken, 0)


def find_links(
    window: int,
    n: int,
    past: int | Tensor,
    mask: Shaped[Tensor, "batch seen"] | None = None,
    positions: Int[Tensor, "#batch pos"] | None = None,
    starts: Int[Tensor, " documents"] | None = None,
) -> Links:
    """Return the links of the next n tokens, which follow `past` earlier tokens.

    `mask` is 0 at padding. It covers the next tokens and, if it is longer, earlier ones. Padding is
    skipped: the previous token is the last one that is not padding. A sequence begins where
    `positions` do not increase by 1, and at the token indices in `starts` (cu_seq_lens). A static
    cache's `past` is a tensor.
    """
    if mask is not None and (torch.compiler.is_compiling() or not mask.all()):
        return _around_padding(window - 1, n, past, mask.bool(), positions)
    if isinstance(past, int) and positions is None and starts is None:
        return Links(past == 0)
    if positions is None:
        like: Any = past if starts is None else starts
        linked = torch.ones(1, n, dtype=torch.bool, device=like.device)
    else:
        linked = torch.cat([positions[:, :1] > 0, positions.diff() == 1], dim=1)
    if starts is not None:
        linked = linked & ~torch.isin(torch.arange(n, device=starts.device), starts)
    if (
        isinstance(past, int)
        and not torch.compiler.is_compiling()
        and linked[:, int(past == 0) :].all()
    ):
        return Links(past == 0)
    linked = torch.cat([linked[:, :1] & (past > 0), linked[:, 1:]], dim=1)
    columns = [linked]
    for _ in range(2, window):
        columns.append(linked & F.pad(columns[-1][:, :-1], (1, 0), value=True))
    return Links(False, torch.stack(columns, dim=-1))


def _around_padding(
    back: int,
    n: int,
    past: int | Tensor,
    real: Bool[Tensor, "batch seen"],
    positions: Int[Tensor, "#batch pos"] | None,
) -> Links:
    """Return the links of the next tokens if some tokens are padding. Tokens in the cache count as
    real tokens.
    """
    before, new = (real[:, :-n].any(dim=1), real[:, -n:]) if real.shape[1] > n else (past > 0, real)
    real_states = F.pad(new, (back, 0), value=True)
    order = (~real_states).long().argsort(dim=1, stable=True)  # real tokens first
    rank = real_states.cumsum(dim=1)[:, back:] - new.long()  # number of real tokens before each
    index = torch.stack([order.gather(1, (rank - 1 - j).clamp(min=0)) for j in range(back)], dim=-1)
    within = index[..., 0] >= back
    linked = within | torch.as_tensor(before, device=real.device).view(-1, 1)
    if positions is not None:
        positions = positions.expand(len(real), n)
        previous = positions.gather(1, (index[..., 0] - back).clamp(min=0))
        linked = linked & torch.where(within, positions == previous + 1, positions > 0)
    linked = linked | ~new  # so that the cache stores the same after padding as before it
    columns = [linked]
    for _ in range(1, back):
        earlier = F.pad(columns[-1], (back, 0), value=True).gather(1, index[..., 0])
        columns.append(linked & earlier)
    return Links(False, torch.stack(columns, dim=-1), index, new)


def links_of_mask(
    back: int, n: int, keys: Int[Tensor, "batch seen"], visible: Bool[Tensor, "#batch pos key"]
) -> Links:
    """Return the links of the next n tokens, given which keys each sees.

    `keys`: the key of each raw vector, those of the next tokens last; negative if the vector
    belongs to no key. The previous token is the last earlier one that is visible. So a mask may
    encode padding, documents, or a tree of continuations. Raises `ConfigError` if the raw vectors
    of the previous token are not there.
    """
    visible = visible.expand(len(keys), -1, -1)
    numbers = torch.arange(visible.shape[2], dtype=torch.int32, device=visible.device)
    own = keys[:, -n:, None]
    earlier = torch.where(visible & (numbers < own), numbers, -1)
    latest = F.pad(earlier, (back, 0), value=-1).topk(back, dim=2).values.long()
    real = visible.gather(2, own)[..., 0]
    place_of = torch.full(
        (len(keys), len(numbers) + 1), -1, device=keys.device
    )  # of each key; column 0 is no key
    places = torch.arange(keys.shape[1], device=keys.device).expand_as(keys)
    place_of = place_of.scatter(1, keys.clamp(min=-1) + 1, places)
    index = place_of.gather(1, latest.flatten(1) + 1).view_as(latest)
    chain = latest >= 0
    is_there = (~chain | (index >= 0) | ~real[..., None]).all()
    if torch.compiler.is_compiling():
        torch._assert_async(is_there, WENT_BACK)
    else:
        require(bool(is_there), WENT_BACK)
    return Links(False, chain, index.clamp(min=0), real, tree=True)
