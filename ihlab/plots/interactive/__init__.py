"""Pictures to explore with plotly, from the tables of the stills and in their colours.

Each function returns a `plotly.graph_objects.Figure`, which is changed with plotly's own calls.
"""

from ihlab.plots.interactive.base import write_page
from ihlab.plots.interactive.curves import curves
from ihlab.plots.interactive.dots import dots
from ihlab.plots.interactive.heads import attention_patterns, effects, head_map, shift_weights
from ihlab.plots.interactive.landscape import basin_map, loss_surface
from ihlab.plots.interactive.sequences import worst_sequences
from ihlab.plots.interactive.studies import view

__all__ = [
    "attention_patterns",
    "basin_map",
    "curves",
    "dots",
    "effects",
    "head_map",
    "loss_surface",
    "shift_weights",
    "view",
    "worst_sequences",
    "write_page",
]
