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
      sequence; None: every earlier token does, and they are adjacent;
    - `index` [batch, pos, window - 1]: the index of the 1st, 2nd, ... token back, None without
      `chain`;
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
        """Return what a cache stores after each of the next tokens in a slice: the last vectors,
        oldest first.

        `raw_states` has the vectors stored before, followed by those of the next tokens. Padding is
        skipped, and a vector of another sequence is 0.
        """
        if self.chain is None or self.index is None:
            return raw_states.unfold(1, back, 1)[:, 1:][:, after].transpose(2, 3)
        chain, index = self.chain[:, after], self.index[:, after]
        seen = raw_states.shape[1]
        places = torch.arange(seen - self.chain.shape[1], seen, device=raw_states.device)[
            None, after, None
        ]
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
    keep: Bool[Tensor, "#batch n"],
) -> Shaped[Tensor, "batch n channel"]:
    """Return the vectors at n indices in each sequence; zeros where `keep` is False."""
    places = (
        index + torch.arange(len(raw_states), device=index.device)[:, None] * raw_states.shape[1]
    )
    taken = raw_states.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, places.shape)
    return torch.where(keep[..., None], taken, 0)


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
    is_plain = isinstance(past, int) and starts is None
    if torch.compiler.is_compiling():
        is_plain = is_plain and mask is None and positions is None
    else:
        is_plain = is_plain and (mask is None or bool(mask.all()))
        is_plain = is_plain and (positions is None or _in_order(positions, past))
    if is_plain:
        return Links(bool(past == 0))
    given: Any = next(x for x in (mask, positions, starts, past) if x is not None)
    back, before = window - 1, torch.as_tensor(past > 0, device=given.device)
    if mask is None:
        rows = 1 if positions is None else len(positions)
        new = torch.ones(rows, n, dtype=torch.bool, device=given.device)
    else:
        new = mask[:, -n:].bool()
        if mask.shape[1] > n:
            before = mask[:, :-n].any(dim=1)
    real_states = F.pad(new, (back, 0), value=True)
    order = (~real_states).long().argsort(dim=1, stable=True)  # real tokens first
    rank = real_states.cumsum(dim=1)[:, back:] - new.long()  # number of real tokens before each
    index = torch.stack([order.gather(1, (rank - 1 - j).clamp(min=0)) for j in range(back)], dim=-1)
    within = index[..., 0] >= back
    linked = within | before.view(-1, 1)
    if starts is not None:
        linked = linked & ~torch.isin(torch.arange(n, device=starts.device), starts)
    if positions is not None:
        positions = positions.expand(len(new), n)
        previous = positions.gather(1, (index[..., 0] - back).clamp(min=0))
        linked = linked & torch.where(within, positions == previous + 1, positions > 0)
    linked = linked | ~new  # so that the cache stores the same after padding as before it
    columns = [linked]
    for _ in range(1, back):
        earlier = F.pad(columns[-1], (back, 0), value=True).gather(1, index[..., 0])
        columns.append(linked & earlier)
    return Links(False, torch.stack(columns, dim=-1), index, new)


def _in_order(positions: Int[Tensor, "#batch pos"], past: int | Tensor) -> bool:
    """Return whether tokens continue one sequence, by their positions."""
    continued = past == 0 or positions[:, 0].all()
    return bool(continued and (positions.diff() == 1).all())


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
