"""Boxes apart, arrows downward and beside the boxes, on random graphs."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ihlab.igsm.layered import layered

HEIGHT, GAP, LANE = 0.5, (0.1, 0.4), 0.05
SHAPE = (HEIGHT, GAP, LANE)


@st.composite
def graphs(draw):
    """Widths and edges of a graph without circles: edges go from lower to higher numbers."""
    count = draw(st.integers(1, 14))
    widths = {f"n{i}": draw(st.sampled_from([0.3, 1.0, 1.7])) for i in range(count)}
    pairs = list(combinations(widths, 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=25)) if pairs else []
    return widths, edges


@given(graphs())
def test_boxes_do_not_overlap_and_arrows_go_down_between_them(graph):
    widths, edges = graph
    layout = layered(widths, edges, *SHAPE)
    assert list(layout.centers) == list(widths)
    assert set(layout.routes) == set(edges)
    for a, b in combinations(widths, 2):
        (xa, ya), (xb, yb) = layout.centers[a], layout.centers[b]
        beside = abs(xa - xb) >= (widths[a] + widths[b]) / 2 + GAP[0] - 1e-9
        above = abs(ya - yb) >= HEIGHT + GAP[1] - 1e-9
        assert beside or above
    rows = {node: round(-y / (HEIGHT + GAP[1])) for node, (_, y) in layout.centers.items()}
    for node, row in rows.items():  # right below its lowest tail, or right above its highest head
        tails = [rows[tail] for tail, head in edges if head == node]
        heads = [rows[head] for tail, head in edges if tail == node]
        assert row == (max(tails) + 1 if tails else min(heads) - 1 if heads else 0)
    assert min(rows.values()) == 0
    for (tail, head), route in layout.routes.items():
        (xt, yt), (xh, yh) = layout.centers[tail], layout.centers[head]
        assert abs(route[0][0] - xt) < widths[tail] / 2
        assert abs(route[-1][0] - xh) < widths[head] / 2
        assert route[0][1] == pytest.approx(yt - HEIGHT / 2)
        assert route[-1][1] == pytest.approx(yh + HEIGHT / 2)
        assert all(upper[1] > lower[1] for upper, lower in pairwise(route))
        for upper, lower in pairwise(route):
            for node, (x, y) in layout.centers.items():
                in_row = min(upper[1], y + HEIGHT / 2) - max(lower[1], y - HEIGHT / 2) > 1e-9
                # What lies within a row is a vertical line, clear of the row's boxes.
                assert not in_row or (upper[0] == lower[0] and abs(x - upper[0]) >= widths[node] / 2 + GAP[0] - 1e-9)


def test_a_ladder_drawn_crossed_is_drawn_straight():
    edges = [("a1", "a2"), ("b1", "b2"), ("c1", "c2"), ("a2", "a3"), ("b2", "b3"), ("c2", "c3")]
    widths = dict.fromkeys(["a1", "b1", "c1", "c2", "b2", "a2", "b3", "a3", "c3"], 1.0)
    layout = layered(widths, edges, *SHAPE)
    for column in "abc":
        assert len({round(layout.centers[f"{column}{row}"][0], 6) for row in (1, 2, 3)}) == 1


def test_a_long_arrow_passes_beside_the_box_between():
    layout = layered(dict.fromkeys("abc", 1.0), [("a", "b"), ("b", "c"), ("a", "c")], *SHAPE)
    assert [round(layout.centers[node][1], 6) for node in "abc"] == [0, -0.9, -1.8]
    _, upper, lower, _ = layout.routes["a", "c"]
    assert upper[0] == lower[0]
    assert abs(upper[0] - layout.centers["b"][0]) == pytest.approx(0.5 + LANE / 2 + GAP[0])
