"""Pictures at the width of a page: their letters are large enough, nothing is cut off, and no
picture is crowded.
"""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from ihlab.study.ledger import Folder
from tests.figures.live import HOMES, live

PAGE, LETTER, CAPITAL = 880, 9, 0.729
"""Width of a page and least height of a capital, in pixels; height of DejaVu Sans's capitals in its
size.
"""

CHECKED = (
    *("figure2", "figure7", "figure8", "figure9", "figure10", "figure11", "table4"),
    *("table5", "table15", "basin_map", "elsewhere"),
    "width",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_letters_are_legible_and_whole(name):
    folder = Folder(HOMES[name])
    experiment, table = live()[name], folder.pictured()
    for picture, figure in {
        "": experiment.draw(table, "laptop"),
        **experiment.draw_more(table, "laptop"),
    }.items():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        scale = PAGE / 72 / figure.get_figwidth()
        panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
        assert len(panels) in (1, 2, 3, 4, 6), f"{picture}: {len(panels)} panels"
        for text in figure.findobj(
            lambda artist: isinstance(artist, Text) and artist.get_text().strip()
        ):
            assert text.get_fontsize() * scale * CAPITAL >= LETTER, (
                f"{picture}: {text} is too small"
            )
        for text in (
            figure._suptitle,
            *(text for axes in panels for text in (axes.title, axes.xaxis.label)),
        ):
            box = text.get_window_extent(renderer)
            assert box.width == 0 or (box.x0 >= 0 and box.x1 <= figure.bbox.x1 + 1), (
                f"{picture}: {text} is cut off"
            )
