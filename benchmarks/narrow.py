"""Attention of narrow heads, forward and backward on one thread: ours against torch's fused kernel."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from paired import Bar, figure, one_thread, ratio, take_turns, timed

OURS, FUSED = "ours", "torch's fused kernel"
SHAPES = {
    "Figure 1a": (64, 4, 32, 8),
    "16 members of width 8": (1024, 1, 32, 8),
    "16 members of width 8, 2 heads": (1024, 2, 32, 4),
    "16 members of Figure 9's 0.8K": (512, 1, 63, 8),
    "rows of 512": (8, 4, 512, 8),
    "the widest": (64, 4, 32, 12),
}
"""Rows, heads, positions, channels of a head."""
CALLS = 10  # of each turn
BAR = Bar(0.9)  # ours / torch's


def measure(quick: bool = False) -> pd.DataFrame:
    """Milliseconds and ratios of every shape; when quick, of the first."""
    shapes = list(SHAPES.items())[: 1 if quick else None]
    with one_thread():
        return pd.DataFrame([row for name, shape in shapes for row in _case(name, shape, 2 if quick else 20)])


def _case(name: str, shape: tuple[int, int, int, int], rounds: int) -> list[dict[str, object]]:
    """The figures of one shape."""
    rows, heads, positions, channels = shape
    table = f"Attention alone, {name} ({rows} rows, {heads} heads of {channels} channels, {positions} positions)"
    seconds = take_turns({side: timed(run) for side, run in _sides(*shape).items()}, rounds)
    figures = [figure(table, side, 1e3 * times / CALLS, "ms") for side, times in seconds.items()]
    return [*figures, ratio(table, f"{OURS} / {FUSED}", seconds[OURS], seconds[FUSED], BAR)]


def _sides(rows: int, heads: int, positions: int, channels: int) -> dict[str, Callable[[], Any]]:
    """Return each side's calls, forward and backward, on the same queries, keys and values."""
    import torch

    from ihlab.model.attention import fused
    from ihlab.model.narrow import is_narrow, narrow_attention

    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(rows, positions, heads, channels, generator=generator) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    assert is_narrow(*inputs), "these are not the queries, keys and values that ours is used for"
    attentions = {OURS: narrow_attention, FUSED: lambda *qkv: fused(*qkv, None, 0.0)}
    apart = (attentions[OURS](*inputs) - attentions[FUSED](*inputs)).abs().max()
    assert apart < 1e-4, f"ours and {FUSED} differ by {apart:.1g}"

    def calls(attention: Callable[..., torch.Tensor]) -> None:
        for _ in range(CALLS):
            torch.autograd.grad(attention(*inputs), inputs, grad)

    return {side: lambda attention=attention: calls(attention) for side, attention in attentions.items()}
