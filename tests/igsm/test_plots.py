"""An iGSM problem's pictures show its graphs, whole and readable."""

from collections import Counter

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from ihlab.igsm.plots import dependency_graph, operand_pattern, structure_graph
from ihlab.igsm.written import written_solution
from ihlab.plots.style import BLACK, BLUE, ORANGE
from tasks import ConfigError
from tasks.igsm.problem import Problem
from tests.igsm.readable import assert_readable

GREY = "#8a8a8a"

SMALL = Problem.parse(
    """Bergen Sloop = 3 . Riga Ketch = 7 . Bergen Ketch = 5 + Bergen Sloop .
    Sloop CodBox = Bergen Sloop - Bergen Ketch . Ketch CodBox = 2 * ( Sloop CodBox + Bergen Sloop ) .
    Bergen Crates ?""".split(),
    23,
)
# As large as problems with op = 15 come: 18 sentences, 9 abstract parameters.
LARGE = Problem.parse(
    """Brussels Coachhouse = 20 * Van Sidemirror . Lorry Armrest = 13 * Coachhouse Parts . Silo Van = 15 .
    Madrid Coachhouse = Silo Van . Boxvan Tachometer = 19 * ( Brussels Depots + Lorry Parts + Coachhouse Parts ) .
    Silo Horsebox = 17 * Madrid Coachhouse . Silo Lorry = 3 * ( Lorry Sidemirror + Lorry Armrest ) .
    Van Tachometer = 17 . Lorry Sidemirror = Madrid Parts + Silo Horsebox + Madrid Vehicles + Brussels Depots .
    Zagreb Sidings = 18 . Zagreb Coachhouse = Brussels Parts . Lorry Tachometer = 11 .
    Silo Boxvan = Lorry Armrest + Van Tachometer . Van Armrest = 16 + ( Silo Van + Silo Horsebox ) .
    Zagreb Silo = Van Armrest + Van Parts + Brussels Depots . Van Sidemirror = 21 * Boxvan Armrest .
    Boxvan Armrest = Van Armrest . Brussels Sidings = 10 * Silo Van . Zagreb Coachhouse ?""".split(),
    23,
)
FLAT = Problem.parse("Bergen Sloop = 3 . Sloop Bergen = 4 * Bergen Sloop . Sloop Bergen ?".split(), 7, flat=True)


def boxes(figure):
    """The boxes: the lines in each, top to bottom, and its colour."""
    [axes] = figure.axes
    found = []
    for box in axes.patches:
        if isinstance(box, FancyBboxPatch):
            area = box.get_bbox()
            inside = [text for text in axes.texts if area.contains(*text.get_position())]
            lines = [text.get_text() for text in sorted(inside, key=lambda text: -text.get_position()[1])]
            found.append((" ".join(lines), to_hex(box.get_edgecolor()).upper()))
    return found


def arrows(figure):
    """Colour and dashes of each line."""
    return Counter(
        (to_hex(line.get_edgecolor()).upper(), line.get_linestyle() != "-")
        for line in figure.axes[0].patches
        if isinstance(line, FancyArrowPatch)
    )


def test_boxes_of_the_dependency_graph_by_hand():
    """8 = 5 + 3; 18 = 3 - 8; 19 = 2 (18 + 3); the query is 3 * 18 + 8 * 19 = 22 modulo 23."""
    assert sorted(boxes(dependency_graph(SMALL))) == sorted(
        [
            ("Bergen's Sloop 3", BLUE),
            ("Riga's Ketch 7", GREY.upper()),
            ("Bergen's Ketch 5 more = 8", BLUE),
            ("Sloop's CodBox difference = 18", BLUE),
            ("Ketch's CodBox 2 × sum = 19", BLUE),
            ("Sloop's Crates the same = 18", BLUE),
            ("Ketch's Crates the same = 19", BLUE),
            ("Bergen's Crates sum of products = 22", ORANGE),
        ]
    )


def test_arrows_of_the_dependency_graph_are_the_operands_and_the_subtracted_one_is_dashed():
    """1 for Bergen's Ketch, 2 and 2 for the CodBoxes, 1 and 1 for the ships' Crates, 4 for Bergen's."""
    assert arrows(dependency_graph(SMALL)) == {(BLUE, False): 10, (BLUE, True): 1}


def test_values_can_be_left_out_but_constants_stay():
    shown = [text for text, _ in boxes(dependency_graph(SMALL, values=False))]
    assert "Bergen's Sloop 3" in shown
    assert "Bergen's Crates sum of products" in shown
    assert not any("=" in text for text in shown)


def test_what_only_the_unneeded_rest_on_is_grey():
    colors = Counter(color for _, color in boxes(dependency_graph(LARGE)))
    assert colors == {ORANGE: 1, BLUE: len(LARGE.necessary) - 1, GREY.upper(): len(LARGE.dependencies) - 12}
    assert len(LARGE.necessary) == 12


def test_structure_of_a_problem_with_an_abstract_query_by_hand():
    figure = structure_graph(SMALL)
    names = {("Sloop", BLACK), ("Ketch", BLACK), ("CodBox", BLACK), ("Riga", BLACK)}
    assert set(boxes(figure)) == names | {("Bergen", ORANGE), ("Crates", ORANGE)}
    assert arrows(figure) == {(BLUE, False): 4, (GREY.upper(), False): 1}
    assert {"Harbours", "Ships", "Crates"} <= {text.get_text() for text in figure.axes[0].texts}


def test_structure_of_a_problem_that_asks_for_an_instance():
    figure = structure_graph(LARGE)
    assert [text for text, color in boxes(figure) if color == ORANGE] == ["Zagreb", "Coachhouse"]
    assert sum(arrows(figure).values()) == len(LARGE.stated)
    assert arrows(figure)[ORANGE, False] == 1


def test_each_category_has_one_row():
    figure = structure_graph(LARGE)
    height = {text.get_text(): round(text.get_position()[1], 6) for text in figure.axes[0].texts}
    for category, items in LARGE.layers.items():
        assert {height[item] for item in items} == {height[category]}
    assert len({height[category] for category in LARGE.layers}) == 4


def test_the_title_asks_the_question():
    for draw in (dependency_graph, structure_graph):
        assert "How many Crates does each Bergen have?  (op = 10)" in [t.get_text() for t in draw(SMALL).axes[0].texts]
    assert "How many Bergen does each Sloop have?" in [t.get_text() for t in dependency_graph(FLAT).axes[0].texts]


@pytest.mark.parametrize(
    ("draw", "problem"),
    [
        (dependency_graph, SMALL),
        (dependency_graph, LARGE),
        (dependency_graph, FLAT),
        (structure_graph, SMALL),
        (structure_graph, LARGE),
    ],
)
def test_no_label_covers_another_or_leaves_the_page(draw, problem):
    figure = draw(problem)
    figure.canvas.draw()
    [legend] = figure.legends
    assert_readable(figure, [*figure.axes[0].texts, legend])
    for box in figure.axes[0].patches:
        if isinstance(box, FancyBboxPatch):
            frame = box.get_window_extent()
            for label in figure.axes[0].texts:
                area = label.get_window_extent()
                assert not frame.overlaps(area) or (frame.x0 < area.x0 and area.x1 < frame.x1)


def test_a_flat_problem_has_no_structure_graph():
    with pytest.raises(ConfigError, match="flat"):
        structure_graph(FLAT)
    assert len(boxes(dependency_graph(FLAT))) == 2


def test_drawing_leaves_the_users_style():
    mpl.get_backend()  # chosen at first use
    before = mpl.rcParams.copy()
    dependency_graph(SMALL)
    structure_graph(SMALL)
    written_solution(["<eos>"], ["no error"], np.ones(1))
    assert mpl.rcParams == before


def test_what_is_to_be_fetched_is_squared_in_the_part_that_is_drawn():
    axes = Figure().subplots()
    operand_pattern(axes, np.eye(5), list("abcde"), [(4, (2, 3)), (3, [2])], start=2)
    [image], [squares] = axes.get_images(), axes.collections
    assert image.get_array().shape == (3, 3)
    assert squares.get_offsets().tolist() == [[0, 2], [1, 2], [0, 1]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c", "d", "e"]
