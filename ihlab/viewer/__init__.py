"""One self-contained HTML page per run: its heads' attention through training. No network, no
framework.
"""

from ihlab.viewer.page import View, view, write_view

__all__ = ["View", "view", "write_view"]
