"""Analyses of a trained model: effective attention, head scores, ablations, routes, circuits, onset."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ihlab.interp.heads import head_scores, locate_induction_heads
    from ihlab.interp.monitor import HeadMonitor
    from ihlab.interp.patterns import effective_pattern
    from ihlab.interp.shifts import shift_report

_HOME = {
    "HeadMonitor": "ihlab.interp.monitor",
    "effective_pattern": "ihlab.interp.patterns",
    "head_scores": "ihlab.interp.heads",
    "locate_induction_heads": "ihlab.interp.heads",
    "shift_report": "ihlab.interp.shifts",
}

__all__ = ["HeadMonitor", "effective_pattern", "head_scores", "locate_induction_heads", "shift_report"]


# Names load on first use, because torch and transformer_lens take seconds and `ihlab --help` needs neither.
def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ihlab.interp' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List names that are not loaded yet, too, so that a notebook completes them."""
    return sorted({*globals(), *__all__})
