"""Interactive plotly figures, from the same tables and in the same colours as the static figures of
`ihlab.plots`.

Each function returns a `plotly.graph_objects.Figure`, which you can change with plotly's own
methods.
"""

from ihlab.plots.interactive.base import write_page
from ihlab.plots.interactive.curves import curves
from ihlab.plots.interactive.heads import effects, head_map, shift_weights
from ihlab.plots.interactive.landscape import loss_surface
from ihlab.plots.interactive.sequences import worst_sequences
from ihlab.plots.interactive.studies import view

__all__ = [
    "curves",
    "effects",
    "head_map",
    "loss_surface",
    "shift_weights",
    "view",
    "worst_sequences",
    "write_page",
]
