"""Interactive pictures hold the numbers of their tables in the colours of the stills, and a browser
tells them.
"""

import math
import re
from itertools import product

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from matplotlib.colors import to_hex

from ihlab.plots import interactive, views
from ihlab.plots.style import COLORS
from ihlab.theory.landscape import field
from tasks.config import ConfigError

rng = np.random.default_rng(0)
CURVES = pd.DataFrame(
    list(product("AB", ("x", "y"), range(3), (0, 10, 20, 40))),
    columns=["curve", "p", "seed", "step"],
)
CURVES = CURVES.assign(lr=np.where(CURVES["curve"] == "A", 0.01, 0.02), accuracy=rng.random(48))
DOTS = pd.DataFrame(
    list(product(("one", "two"), "AB", ("x", "y"), range(3))),
    columns=["rows", "kind", "panel", "seed"],
)
DOTS = DOTS.assign(lr=0.01, steps_to_90=10 + 30 * rng.random(24))
DOTS.loc[(DOTS["rows"] == "two") & (DOTS["seed"] == 2), "steps_to_90"] = math.inf
METRICS = pd.DataFrame({"step": [0, 5, 9]})
for column in product(("alpha", "beta"), (1, 2), (0, 1)):
    METRICS["{}{}_0.{}".format(*column)] = rng.normal(size=3)
HEADS = pd.DataFrame(list(product(range(2), range(3))), columns=["layer", "head"])
SCORES = HEADS.assign(
    prefix_matching=rng.random(6), loss_rise=rng.normal(size=6), induction=[False] * 5 + [True]
)
INPUTS = pd.DataFrame(list(product(range(2), range(2), "qkv")), columns=["layer", "head", "input"])
ENDS = ["from_layer", "from_head", "to_layer", "to_head", "input"]
EDGES = pd.DataFrame(list(product([0], range(2), [1], range(2), "qkv")), columns=ENDS)
EFFECTS = {
    name: nodes.assign(
        effect=rng.normal(size=len(nodes)), **{"eap-ig": rng.normal(size=len(nodes))}
    )
    for name, nodes in {"effects": HEADS, "effects_inputs": INPUTS, "effects_edges": EDGES}.items()
}
FIELDS = {f"exact, T = {length}": field("exact", length, points=6).table() for length in (5, 12)}
PATHS = pd.DataFrame(
    {"path": ["seed 7 head 0"] * 2 + ["seed 8 head 0"] * 2, "series": ["became", "became", "did not", "did not"],
     "step": [0, 50, 0, 50], "alpha1": [0.5, 0.2, 0.9, 0.8], "beta1": [0.5, 0.9, 0.1, 0.2]}
)  # fmt: skip
WORST = pd.DataFrame(
    list(product((4, 40), range(3), range(3))), columns=["length", "query", "answer"]
)
WORST = WORST[WORST["query"] != WORST["answer"]].reset_index(drop=True)
WORST["margin"] = rng.normal(size=len(WORST))
WORST["verdict"] = np.where(WORST["query"] == 0, "refuted", "proved")
WORST["worst"] = [
    [f"<t{query}>"] * length for length, query in zip(WORST["length"], WORST["query"], strict=True)
]


def draw_curves(table):
    return interactive.view(views.curves("step", "accuracy", colors="curve", panels="p"), table)


def draw_dots(table):
    declared = views.dots("rows", panels="panel", colors="kind", lines=(25,))
    return interactive.view(declared, table)


def draw_effects(table):
    return interactive.effects(table, "eap-ig")


def draw_surface(table):
    return interactive.loss_surface({"exact, T = 12": table}, {"exact, T = 12": PATHS})


DRAW = {
    "curves": (draw_curves, CURVES),
    "dots": (draw_dots, DOTS),
    "shift_weights": (interactive.shift_weights, METRICS),
    "head_map": (interactive.head_map, SCORES),
    **{name: (draw_effects, table) for name, table in EFFECTS.items()},
    "worst_sequences": (interactive.worst_sequences, WORST),
}
"""Each picture of one table: how it is drawn, and the table."""
FIGURES = {
    **{name: draw(table) for name, (draw, table) in DRAW.items()},
    "loss_surface": interactive.loss_surface(FIELDS, {"exact, T = 12": PATHS}),
}
HOLES = {
    "curves": CURVES.assign(accuracy=CURVES["accuracy"].where(CURVES["step"] != 10)).drop([3, 40]),
    "dots": DOTS.assign(steps_to_90=DOTS["steps_to_90"].where(DOTS["kind"] != "B")).drop([0, 9]),
    "dots, no rate": DOTS.assign(lr=DOTS["lr"].where(DOTS["seed"] != 1)),
    "shift_weights": METRICS.assign(**{"alpha1_0.1": [math.nan, 0.5, math.nan]}).drop(
        columns="beta2_0.0"
    ),
    "head_map": SCORES.assign(
        layer=[1, 1, 1, 3, 3, 3], loss_rise=math.nan, induction=[math.nan] * 5 + [True]
    ),
    "effects_edges": EFFECTS["effects_edges"].drop([0, 5]),
    "worst_sequences": WORST.assign(margin=WORST["margin"].where(WORST["query"] != 1)).drop(
        [0, 11]
    ),
}
LIKE_NUMBERS = {
    "curves": CURVES.replace({"curve": {"A": "10", "B": "9"}, "p": {"x": "1e2", "y": "0"}}),
    "dots": DOTS.replace({"rows": {"one": "10", "two": "9"}, "kind": {"A": "2", "B": "1"}}),
    "effects": EFFECTS["effects"].assign(layer=SCORES["layer"] + 10, head=9 - SCORES["head"]),
    "worst_sequences": WORST.assign(
        query=WORST["query"].map({0: "10", 1: "9", 2: "1"}),
        answer=WORST["answer"].map({0: "10", 1: "9", 2: "1"}),
    ),
}
VARIANTS = [
    *((name, table) for tables in (HOLES, LIKE_NUMBERS) for name, table in tables.items()),
    *((name, table.iloc[[-1]]) for name, (_, table) in DRAW.items()),
]


def drawn(name, table):
    return DRAW[name.partition(",")[0]][0](table)


def cells(trace):
    """The values of a map, by the names of its row and its column."""
    values = zip(product(trace.y, trace.x), trace.z.ravel(), strict=True)
    return {cell: value for cell, value in values if not np.isnan(value)}


def maps(figure):
    return [trace for trace in figure.data if trace.type == "heatmap"]


def traces(figure, mode):
    """The traces with points, and not only a key of the legend."""
    alike = figure.select_traces({"mode": mode})
    return [trace for trace in alike if list(trace.x) != [None]]


def cell_of(node):
    """The names of a node's row and column."""
    if "query" in node:
        return str(node["query"]), str(node["answer"])
    if "from_layer" in node:
        to = "{to_layer}.{to_head} {input}".format(**node)
        return "{from_layer}.{from_head}".format(**node), to
    if "input" in node:
        return str(node["layer"]), "{head} {input}".format(**node)
    return str(node["layer"]), str(node["head"])


@pytest.mark.parametrize("name", FIGURES)
def test_every_picture_has_a_title_and_names_its_axes(name):
    layout = FIGURES[name].layout
    assert layout.title.text
    axes = [layout.xaxis, layout.yaxis]
    if name == "loss_surface":
        axes = [layout.scene.xaxis, layout.scene.yaxis, layout.scene.zaxis]
    assert all(axis.title.text for axis in axes)


@pytest.mark.parametrize(
    ("name", "table"), VARIANTS, ids=[f"{name} {len(table)}" for name, table in VARIANTS]
)
def test_a_table_with_holes_with_one_row_or_names_like_numbers_is_drawn_whole(name, table):
    figure, kind = drawn(name, table), name.partition(",")[0]
    if kind in ("curves", "dots", "shift_weights"):
        values = {"curves": ["accuracy"], "dots": ["steps_to_90"]}
        weights = [name for name in table if "_" in name]
        shown = traces(figure, "lines+markers") + traces(figure, "markers")
        points = np.concatenate([trace.y for trace in shown])
        assert np.isfinite(points).sum() == table[values.get(kind, weights)].notna().sum().sum()
        return
    shown = [(table, "effect"), (table, "eap-ig")]
    if kind == "head_map":
        shown = [(table, "prefix_matching"), (table, "loss_rise")]
    if kind == "worst_sequences":
        shown = [(rows, "margin") for _, rows in table.groupby("length")]
    for trace, (rows, column) in zip(maps(figure), shown, strict=True):
        expected = {}
        for node in rows.dropna(subset=[column]).to_dict("records"):
            expected[cell_of(node)] = np.float32(node[column])
        assert cells(trace) == expected
    for frame in figure.layout.shapes:  # around the last head, whose place is counted
        assert (frame.x0 + 0.5, frame.y0 + 0.5) == tuple(table[["head", "layer"]].iloc[-1])
        assert figure.data[0].y[int(frame.y0 + 0.5)] == str(table["layer"].iloc[-1])


def test_maps_refuse_two_rows_of_one_head_and_surfaces_a_hole():
    with pytest.raises(
        ConfigError, match=r"^The table has several rows of head 0\.1, but must have one"
    ):
        interactive.head_map(pd.concat([SCORES, SCORES.iloc[[1]]]))
    for table in (FIELDS["exact, T = 12"].drop(3), FIELDS["exact, T = 12"].iloc[[3]]):
        with pytest.raises(
            ConfigError, match=r"losses on a grid of . x ., but must have one at each point"
        ):
            draw_surface(table)
    with pytest.raises(
        ConfigError, match="There are paths on 'printed', but the surfaces are exact, T = 5, exact"
    ):
        interactive.loss_surface(FIELDS, {"printed": PATHS})


def test_curves_are_the_table_and_say_run_seed_and_rate():
    figure = FIGURES["curves"]
    runs = list(CURVES.groupby(["p", "curve", "seed"], sort=False))
    assert len(figure.data) == len(runs)
    for (panel, curve, seed), run in runs:
        of_run = f"{panel}, {curve}<br>seed {seed}, learning rate {run['lr'].iloc[0]}"
        start = f"{of_run}<br>step %{{x}}<br>accuracy %{{y:.4g}}"
        [trace] = [trace for trace in figure.data if trace.hovertemplate.startswith(start)]
        assert list(trace.x) == list(run["step"])
        assert np.array_equal(trace.y, run["accuracy"].astype(np.float32))
        assert trace.legendgroup == curve
    one = CURVES[CURVES["p"] == CURVES["p"].iloc[0]]
    still = views.curves("step", "accuracy", colors="curve")(one).axes[0]
    colours = {trace.name: trace.line.color for trace in figure.data}
    expected = [to_hex(line.get_color()).upper() for line in still.get_lines()[:2]]
    assert list(colours.values()) == expected
    assert sum(trace.showlegend for trace in figure.data) == 2


def test_dots_are_the_table():
    dots = traces(FIGURES["dots"], "markers")
    for panel, axis in (("x", "x"), ("y", "x2")):
        mine = DOTS[DOTS["panel"] == panel]
        finite = mine["steps_to_90"].replace(math.inf, np.nan)
        found = []
        for trace in dots:
            if trace.xaxis == axis:
                found += zip(np.rint(trace.y), trace.customdata, trace.x, strict=True)
        values = finite.fillna(views.NEVER * finite.max()).astype(np.float32)
        assert sorted(found) == sorted(
            zip(mine["rows"] == "two", mine["seed"], values, strict=True)
        )
    for trace in dots:
        told = trace.hovertemplate
        assert ("never" in told) == (trace.customdata[0] == 2 and told.startswith("two, "))
        assert trace.marker.color == COLORS["AB".index(trace.legendgroup)]
    assert [line.x0 for line in FIGURES["dots"].layout.shapes] == [25, 25]  # one in each panel
    bars = np.concatenate([trace.x for trace in traces(FIGURES["dots"], "lines")])
    medians = DOTS.groupby(["panel", "kind", "rows"])["steps_to_90"].median()
    assert set(bars) == set(medians.astype(np.float32))


def test_another_view_than_dots_and_curves_is_refused():
    with pytest.raises(
        ConfigError, match="'t' has no interactive picture: its view is neither Dots nor Curves"
    ):
        interactive.view(print, DOTS, "t")


def test_shift_weights_are_the_metrics():
    for trace in FIGURES["shift_weights"].data:
        head, name = re.match(r"key/value head (\S+)<br>(\S+)", trace.hovertemplate).groups()
        column = f"{ {'α': 'alpha', 'β': 'beta'}[name[0]] }{name[6]}_{head}"
        assert np.array_equal(trace.y, METRICS[column].astype(np.float32)), column
    assert len(FIGURES["shift_weights"].data) == 8


def test_surfaces_and_paths_are_the_tables_and_streamlines_descend():
    figure = FIGURES["loss_surface"]
    surfaces = [trace for trace in figure.data if trace.type == "surface"]
    for surface, table in zip(surfaces, FIELDS.values(), strict=True):
        assert np.array_equal(surface.z, table["loss"].to_numpy().reshape(6, 6).astype(np.float32))
    for line in (trace for trace in figure.data if trace.name == "descent"):
        gaps = np.flatnonzero(np.isnan(line.z))
        for height in np.split(line.z, gaps):
            assert (np.diff(height[~np.isnan(height)]) < 1e-3).all()
        ends = np.column_stack([line.x, line.y])[gaps - 1]
        assert np.allclose(ends, (0, 1), atol=0.06), "the exact form leads to (0, 1)"
    for trace, (_, path) in zip(
        traces(figure, "lines+markers"), PATHS.groupby("path"), strict=True
    ):
        assert list(trace.x) == list(path["alpha1"].astype(np.float32))
        assert list(trace.customdata) == [0, 50]
    assert [button.label for button in figure.layout.updatemenus[0].buttons] == list(FIELDS)
    assert [trace.visible for trace in figure.data] == [False] * 3 + [True] * 5
    eye = figure.layout.scene.camera.eye
    assert eye.x < 0 < eye.y, "the induction corner (0, 1) is nearest"


@pytest.mark.parametrize(
    ("margins", "scale", "ends"),
    [
        ([-1.0, 4.0, 2.0], "RdBu", (-4, 4)),
        ([5.0, 4.0, 9.0], "Blues", (4, 9)),
        ([-5.0, -4.0, -9.0], "Reds", (-9, -4)),
    ],
)
def test_worst_sequences_use_their_colours_and_mark_the_smallest_margin(margins, scale, ends):
    table = WORST.iloc[:3].assign(margin=margins)
    figure = interactive.worst_sequences(table)
    colours = figure.layout.coloraxis
    assert (colours.cmin, colours.cmax) == ends
    named = go.Figure().update_layout(coloraxis={"colorscale": scale})
    assert colours.colorscale == named.layout.coloraxis.colorscale
    mark, smallest = figure.data[-1], table.loc[table["margin"].idxmin()]
    assert (mark.y, mark.x) == ((str(smallest["query"]),), (str(smallest["answer"]),))


@pytest.mark.slow
def test_an_unchanged_picture_is_an_unchanged_page_and_pages_share_the_library(tmp_path):
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page in pages:
        interactive.write_page(FIGURES["curves"], page, "directory")
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html", "plotly.min.js"]


# In a browser: the point that the mouse goes to, as (trace, x, y) in the data, and texts that it
# must show there.
HOVERED = {
    "curves": (0, 20, CURVES["accuracy"][2], ["x, A", "seed 0, learning rate 0.01", "step 20"]),
    "dots": (None, None, None, ["one, x, A", "seed ", "training steps to 90% accuracy: "]),
    "head_map": (0, "2", "1", ["head 1.2", f"prefix_matching {SCORES['prefix_matching'][5]:.3f}"]),
    "loss_surface": (None, None, None, ["α₁", "β₁"]),
    "worst_sequences": (1, "0", "2", ["query 2, answer 0", "proved", "<t2> <t2>"]),
}
PLACE = """([trace, x, y]) => {
    const figure = document.getElementById("picture"), layout = figure._fullLayout, shown = figure._fullData;
    const box = figure.getBoundingClientRect();
    if (layout.scene) {
        const {x, y} = layout.scene.domain, size = layout._size;
        return [size.l + size.w * (x[0] + x[1]) / 2, box.top + size.t + size.h * 0.3];
    }
    if (trace === null) {
        trace = shown.findIndex(each => each.mode === "markers");
        [x, y] = [figure.calcdata[trace][0].x, figure.calcdata[trace][0].y];
    }
    const [across, up] = ["xaxis", "yaxis"].map(name => layout[shown[trace][name].replace(/^[xy]/, name)]);
    const at = (axis, value) => axis.d2p(axis.type === "category" ? axis._categories.indexOf(value) : value);
    return [box.left + across._offset + at(across, x), box.top + up._offset + at(up, y)];
}"""


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens a picture as a page, which must log no error and load nothing but itself and the
    library.
    """
    complaints, requests = [], []
    page = browser.new_page(viewport={"width": 880, "height": 900})
    page.set_default_timeout(60_000)
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))

    def open_(figure):
        interactive.write_page(figure, tmp_path / "picture.html", "directory")
        page.goto((tmp_path / "picture.html").as_uri())
        page.wait_for_function("document.getElementById('picture')?._fullLayout?._size")
        return page

    yield open_
    page.close()
    assert complaints == []
    assert {url.rpartition("/")[0] for url in requests} == {tmp_path.as_uri()}


def hover(page, *point):
    """The text that the picture shows when the mouse is on a point."""
    x, y = page.evaluate(
        PLACE, [float(each) if isinstance(each, np.floating) else each for each in point]
    )
    page.wait_for_timeout(200)
    page.mouse.move(1, 1)
    page.wait_for_selector(".hovertext", state="detached")
    page.mouse.move(x - 3, y - 3)
    page.mouse.move(x, y, steps=3)
    page.wait_for_selector(".hovertext")
    return " ".join(page.locator(".hovertext").all_text_contents())


@pytest.mark.slow
@pytest.mark.parametrize("name", HOVERED)
def test_a_browser_tells_the_point_under_the_mouse(open_page, name):
    *point, texts = HOVERED[name]
    told = hover(open_page(FIGURES[name]), *point)
    assert all(text in told for text in texts), told


@pytest.mark.slow
@pytest.mark.parametrize("table", [HOLES["head_map"], LIKE_NUMBERS["effects"]])
def test_a_browser_tells_the_cell_under_the_mouse(open_page, table):
    figure = drawn("effects" if "effect" in table else "head_map", table)
    page = open_page(figure)
    for cell, value in list(cells(figure.data[0]).items())[::2]:
        told = hover(page, 0, *reversed(cell))
        assert "head {}.{}".format(*cell) in told
        assert f"{value:.3f}" in told.replace("−", "-"), told


@pytest.mark.slow
def test_clicks_hide_a_kind_change_the_axis_and_move_through_training(open_page):
    page = open_page(FIGURES["curves"])
    shown = "document.getElementById('picture')._fullData.map(trace => trace.visible)"
    page.locator(".legendtoggle").first.click()
    page.wait_for_function(f"{shown}.filter(each => each === true).length === 6")
    page.get_by_text("log axis").click()
    page.wait_for_function("document.getElementById('picture')._fullLayout.xaxis2.type === 'log'")


@pytest.mark.slow
def test_a_switch_shows_another_group(open_page):
    page = open_page(FIGURES["loss_surface"])
    page.locator(".updatemenu-header").click()
    page.locator(".updatemenu-dropdown-button").first.click()
    page.wait_for_function("document.getElementById('picture')._fullData[0].visible === true")
    assert not page.evaluate("document.getElementById('picture')._fullData.at(-1).visible")
