"""Analyses of a trained model: effective attention, head scores, ablations, routes, circuits,
onset.
"""

from typing import TYPE_CHECKING

from ihlab.runtime.lazy import lazy

if TYPE_CHECKING:
    from ihlab.interp.ablation import ablate_heads
    from ihlab.interp.heads import head_scores, locate_induction_heads
    from ihlab.interp.monitor import HeadMonitor
    from ihlab.interp.patterns import effective_pattern
    from ihlab.interp.shifts import shift_report

_HOME = {
    "HeadMonitor": "ihlab.interp.monitor",
    "ablate_heads": "ihlab.interp.ablation",
    "effective_pattern": "ihlab.interp.patterns",
    "head_scores": "ihlab.interp.heads",
    "locate_induction_heads": "ihlab.interp.heads",
    "shift_report": "ihlab.interp.shifts",
}

__all__ = [
    "HeadMonitor",
    "ablate_heads",
    "effective_pattern",
    "head_scores",
    "locate_induction_heads",
    "shift_report",
]

__getattr__, __dir__ = lazy(__name__, _HOME)
