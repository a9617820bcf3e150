"""One self-contained HTML page per run: where its heads look, through training. No network, no framework."""

from ihlab.viewer.page import View, view, write_view

__all__ = ["View", "view", "write_view"]
