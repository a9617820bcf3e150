"""Whether a drawn figure can be read."""

from itertools import combinations


def assert_readable(figure, labels):
    """No label covers another or leaves the page."""
    areas = [label.get_window_extent() for label in labels]
    assert [(a, b) for a, b in combinations(areas, 2) if a.overlaps(b)] == []
    page = figure.bbox
    assert all(page.x0 <= a.x0 and a.x1 <= page.x1 and page.y0 <= a.y0 and a.y1 <= page.y1 for a in areas)
