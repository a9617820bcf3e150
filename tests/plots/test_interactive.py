"""Interactive pictures hold the numbers of their tables in the colours of the stills, and a browser tells them."""

import math
import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from ihlab.plots import interactive, views
from ihlab.plots.style import COLORS
from ihlab.theory.landscape import basins, field
from tasks.config import ConfigError

rng = np.random.default_rng(0)
CURVES = pd.DataFrame(
    [
        (kind, panel, seed, 0.01 if kind == "A" else 0.02, step, rng.random())
        for kind, panel, seed, step in product("AB", ("x", "y"), range(3), (0, 10, 20, 40))
    ],
    columns=["curve", "setting", "seed", "lr", "step", "accuracy"],
)
DOTS = pd.DataFrame(
    [
        (row, kind, panel, seed, 0.01, math.inf if (row, seed) == ("two", 2) else 10 + 30 * rng.random())
        for row, kind, panel, seed in product(("one", "two"), "AB", ("x", "y"), range(3))
    ],
    columns=["rows", "kind", "panel", "seed", "lr", "steps_to_90"],
)
PATTERNS = np.tril(rng.random((3, 2, 2, 5, 5)))
METRICS = pd.DataFrame({"step": [0, 5, 9]}).assign(
    **{
        f"{name}{back}_0.{group}": rng.normal(size=3)
        for name, back, group in product(("alpha", "beta"), (1, 2), (0, 1))
    }
)
HEADS = pd.DataFrame(list(product(range(2), range(3))), columns=["layer", "head"])
SCORES = HEADS.assign(prefix_matching=rng.random(6), loss_rise=rng.normal(size=6), induction=[False] * 5 + [True])
INPUTS = pd.DataFrame(list(product(range(2), range(2), "qkv")), columns=["layer", "head", "input"])
EDGES = pd.DataFrame(
    list(product([0], range(2), [1], range(2), "qkv")),
    columns=["from_layer", "from_head", "to_layer", "to_head", "input"],
)
FIELDS = {f"exact, T = {length}": field("exact", length, points=6).table() for length in (5, 12)}
PATHS = pd.DataFrame(
    {"path": ["seed 7 head 0"] * 2 + ["seed 8 head 0"] * 2, "series": ["became", "became", "did not", "did not"],
     "step": [0, 50, 0, 50], "alpha1": [0.5, 0.2, 0.9, 0.8], "beta1": [0.5, 0.9, 0.1, 0.2]}
)  # fmt: skip
BASINS = basins(12, points=9)
WORST = pd.DataFrame(
    [
        (length, query, answer, "proved" if query else "refuted", rng.normal(), [f"<t{query}>"] * length)
        for length, query, answer in product((4, 40), range(3), range(3))
        if query != answer
    ],
    columns=["length", "query", "answer", "verdict", "margin", "worst"],
)


def effects_of(nodes):
    return nodes.assign(effect=rng.normal(size=len(nodes)), **{"eap-ig": rng.normal(size=len(nodes))})


FIGURES = {
    "curves": interactive.curves(CURVES, "step", "accuracy", panels="setting"),
    "dots": interactive.dots(
        DOTS, "rows", panels="panel", colors="kind", claims={"sooner": [{"rows": "one", "kind": "A"}]}
    ),
    "attention_patterns": interactive.attention_patterns(PATTERNS, ["<bos>", "a", "b", "a", "c"], [0, 10, 20]),
    "shift_weights": interactive.shift_weights(METRICS),
    "head_map": interactive.head_map(SCORES),
    "effects": interactive.effects(head_effects := effects_of(HEADS), "eap-ig"),
    "effects_inputs": interactive.effects(input_effects := effects_of(INPUTS), "eap-ig"),
    "effects_edges": interactive.effects(edge_effects := effects_of(EDGES), "eap-ig"),
    "loss_surface": interactive.loss_surface(FIELDS, {"exact, T = 12": PATHS}),
    "basin_map": interactive.basin_map(BASINS),
    "worst_sequences": interactive.worst_sequences(WORST),
}


def traces(figure, mode):
    """The traces with points, and not only a key of the legend."""
    return [trace for trace in figure.data if trace.mode == mode and list(trace.x) != [None]]


@pytest.mark.parametrize("name", FIGURES)
def test_every_picture_has_a_title_and_names_its_axes(name):
    layout = FIGURES[name].layout
    assert layout.title.text
    drawn = {trace.xaxis or "x" for trace in FIGURES[name].data if trace.type not in ("surface", "scatter3d")}
    axes = [layout.scene.xaxis, layout.scene.yaxis, layout.scene.zaxis] if not drawn else [layout.xaxis, layout.yaxis]
    if name == "attention_patterns":  # shared axes have their names at the edge
        axes = [layout.xaxis3, layout.yaxis]
    assert all(axis.title.text for axis in axes)


def test_curves_are_the_table_and_say_run_seed_and_rate():
    figure = FIGURES["curves"]
    runs = list(CURVES.groupby(["setting", "curve", "seed"], sort=False))
    assert len(figure.data) == len(runs)
    by_text = {trace.hovertemplate: trace for trace in figure.data}
    for (setting, curve, seed), run in runs:
        rate = 0.01 if curve == "A" else 0.02
        start = f"{setting}, {curve}<br>seed {seed}, learning rate {rate}<br>step %{{x}}<br>accuracy %{{y:.4g}}"
        [trace] = [trace for text, trace in by_text.items() if text.startswith(start)]
        assert list(trace.x) == list(run["step"])
        assert np.array_equal(trace.y, run["accuracy"].astype(np.float32))
        assert trace.legendgroup == curve
    still = views.curves("step", "accuracy", colors="curve")(CURVES).axes[0]
    colours = {trace.name: trace.line.color for trace in figure.data}
    assert list(colours.values()) == [to_hex(line.get_color()).upper() for line in still.get_lines()[:2]]
    assert sum(trace.showlegend for trace in figure.data) == 2


def test_dots_are_the_table_and_say_which_claims_they_enter():
    figure = FIGURES["dots"]
    dots = traces(figure, "markers")
    for panel, axis in (("x", "x"), ("y", "x2")):
        mine = DOTS[DOTS["panel"] == panel]
        finite = mine["steps_to_90"].replace(math.inf, np.nan)
        drawn = [
            (round(float(y)), seed, x)
            for trace in dots
            if trace.xaxis == axis
            for x, y, seed in zip(trace.x, trace.y, trace.customdata, strict=True)
        ]
        values = finite.fillna(views.NEVER * finite.max()).astype(np.float32)
        rows = [0 if row == "one" else 1 for row in mine["rows"]]
        assert sorted(drawn) == sorted(zip(rows, mine["seed"], values, strict=True))
    for trace in dots:
        assert ("<br>claims:<br>sooner" in trace.hovertemplate) == trace.hovertemplate.startswith("one, ") * (
            trace.legendgroup == "A"
        )
        assert ("never" in trace.hovertemplate) == (trace.customdata[0] == 2 and trace.hovertemplate.startswith("two"))
        assert trace.marker.color == COLORS["AB".index(trace.legendgroup)]
    bars = {(trace.legendgroup, float(x)) for trace in traces(figure, "lines") for x in trace.x}
    medians = DOTS.groupby(["panel", "kind", "rows"])["steps_to_90"].median()
    assert bars == {(kind, float(np.float32(value))) for (_, kind, _), value in medians.items()}


def test_a_declared_view_is_drawn_from_its_declaration():
    declared = views.dots("rows", panels="panel", colors="kind")
    drawn = interactive.dots(DOTS, "rows", panels="panel", colors="kind", title="t")
    assert interactive.view(declared, DOTS, "t") == drawn
    declared = views.curves("step", "accuracy", colors="curve", panels="setting")
    drawn = interactive.curves(CURVES, "step", "accuracy", panels="setting", title="t")
    assert interactive.view(declared, CURVES, "t") == drawn
    with pytest.raises(ConfigError, match="'t' has no interactive picture: its view is neither Dots nor Curves"):
        interactive.view(print, DOTS, "t")


def test_patterns_have_one_map_for_each_step_and_head_and_the_last_step_is_shown():
    figure = FIGURES["attention_patterns"]
    assert np.allclose(np.stack([trace.z for trace in figure.data]).reshape(PATTERNS.shape), PATTERNS, atol=6e-4)
    assert [trace.visible for trace in figure.data] == [False] * 8 + [True] * 4
    [slider] = figure.layout.sliders
    assert [step.label for step in slider.steps] == ["0", "10", "20"]
    assert list(slider.steps[0].args[0]["visible"]) == [True] * 4 + [False] * 8
    assert figure.layout.xaxis.ticktext[0] == "&lt;bos&gt;₀"
    with pytest.raises(ConfigError, match="There are 2 steps, but patterns of 3 checkpoints"):
        interactive.attention_patterns(PATTERNS, "abcde", [0, 1])


def test_shift_weights_are_the_metrics():
    for trace in FIGURES["shift_weights"].data:
        head, name = re.match(r"key/value head (\S+)<br>(\S+)", trace.hovertemplate).groups()
        column = f"{ {'α': 'alpha', 'β': 'beta'}[name[0]] }{name[6]}_{head}"
        assert np.array_equal(trace.y, METRICS[column].astype(np.float32)), column
    assert len(FIGURES["shift_weights"].data) == 8


@pytest.mark.parametrize(
    ("name", "columns", "table"),
    [
        ("head_map", ("prefix_matching", "loss_rise"), SCORES),
        ("effects", ("effect", "eap-ig"), head_effects),
        ("effects_inputs", ("effect", "eap-ig"), input_effects),
        ("effects_edges", ("effect", "eap-ig"), edge_effects),
    ],
)
def test_maps_have_each_node_in_its_cell(name, columns, table):
    figure = FIGURES[name]
    for trace, column in zip(figure.data, columns, strict=True):
        assert trace.z.size == len(table)
        for node in table.to_dict("records"):
            if "from_layer" in node:
                cell = (
                    f"{node['from_layer']}.{node['from_head']}",
                    f"{node['to_layer']}.{node['to_head']} {node['input']}",
                )
            else:
                cell = str(node["layer"]), f"{node['head']}" + (f" {node['input']}" if "input" in node else "")
            assert trace.z[trace.y.index(cell[0]), trace.x.index(cell[1])] == np.float32(node[column])
    assert len(figure.layout.shapes) == (2 if name == "head_map" else 0), "one head is framed in both maps"


def test_surfaces_and_paths_are_the_tables_and_streamlines_descend():
    figure = FIGURES["loss_surface"]
    surfaces = [trace for trace in figure.data if trace.type == "surface"]
    for surface, table in zip(surfaces, FIELDS.values(), strict=True):
        assert np.array_equal(surface.z, table["loss"].to_numpy().reshape(6, 6).astype(np.float32))
    for line in (trace for trace in figure.data if trace.name == "descent"):
        heights = np.split(line.z, np.flatnonzero(np.isnan(line.z)))
        assert all((np.diff(height[~np.isnan(height)]) < 1e-3).all() for height in heights)
        ends = [(x, y) for x, y, after in zip(line.x, line.y, line.x[1:], strict=False) if np.isnan(after)]
        assert np.allclose(ends, (0, 1), atol=0.06), "the exact form leads to (0, 1)"
    walked = [trace for trace in figure.data if trace.type == "scatter3d" and trace.mode == "lines+markers"]
    assert [list(trace.x) for trace in walked] == [list(np.float32([0.5, 0.2])), list(np.float32([0.9, 0.8]))]
    assert [list(trace.customdata) for trace in walked] == [[0, 50]] * 2
    assert [button.label for button in figure.layout.updatemenus[0].buttons] == list(FIELDS)
    assert [trace.visible for trace in figure.data] == [False] * 3 + [True] * 5
    with pytest.raises(ConfigError, match="There are paths on 'printed', but the surfaces are exact, T = 5, exact"):
        interactive.loss_surface(FIELDS, {"printed": PATHS})


def test_every_start_of_the_basin_map_is_in_one_basin():
    induction, other, _ = FIGURES["basin_map"].data
    in_induction = (BASINS["basin"] == "induction").to_numpy().reshape(9, 9)
    assert np.array_equal(~np.isnan(induction.z), in_induction)
    assert np.array_equal(~np.isnan(other.z), ~in_induction)
    assert 0 < in_induction.sum() < 81
    times = BASINS["decided"].to_numpy().reshape(9, 9)[in_induction]
    assert np.allclose(10 ** induction.z[in_induction], times, rtol=1e-5)


def test_worst_sequences_have_their_margin_verdict_and_tokens():
    for trace, (length, part) in zip(FIGURES["worst_sequences"].data, WORST.groupby("length"), strict=True):
        for row in part.itertuples():
            cell = trace.y.index(str(row.query)), trace.x.index(str(row.answer))
            assert trace.z[cell] == np.float32(row.margin)
            verdict, text = trace.customdata[cell]
            assert (verdict, text.count("&lt;t"), text.count("<br>")) == (row.verdict, length, (length - 1) // 16)


@pytest.mark.slow
def test_an_unchanged_picture_is_an_unchanged_page_and_pages_share_the_library(tmp_path):
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page in pages:
        interactive.write_page(FIGURES["curves"], page, "directory")
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert pages[0].stat().st_size < 40_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html", "plotly.min.js"]
    interactive.write_page(FIGURES["curves"], tmp_path / "whole.html")
    assert (tmp_path / "whole.html").stat().st_size < 6e6


# In a browser: the point that the mouse goes to, as (trace, x, y) in the data, and texts that it must show there.
HOVERED = {
    "curves": (0, 20, CURVES["accuracy"][2], ["x, A", "seed 0, learning rate 0.01", "step 20"]),
    "dots": (None, None, None, ["one, x, A", "seed ", "training steps to 90% accuracy: ", "sooner"]),
    "attention_patterns": (8, 0, 4, ["head 0.0", "query c₄", "key <bos>₀", f"attention {PATTERNS[2, 0, 0, 4, 0]:.3f}"]),
    "shift_weights": (0, 5, METRICS["alpha1_0.0"][1], ["key/value head 0.0", "step 5", "weight"]),
    "head_map": (0, "2", "1", ["head 1.2", f"prefix_matching {SCORES['prefix_matching'][5]:.3f}"]),
    "effects": (1, "2", "1", ["head 1.2", "eap-ig"]),
    "effects_inputs": (0, "1 k", "1", ["head 1.1 k", "exact effect"]),
    "effects_edges": (0, 5, 1, ["head 0.1 to 1.1 v"]),
    "loss_surface": (None, None, None, ["α₁", "β₁"]),
    "basin_map": (0, 0.5, 0.5, ["start (0.500, 0.500)", "induction, decided at time"]),
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
    return [box.left + across._offset + across.d2p(x), box.top + up._offset + up.d2p(y)];
}"""


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens a picture as a page, which must log no error and load nothing but itself and the library."""
    complaints, requests = [], []
    page = browser.new_page(viewport={"width": 880, "height": 900})
    page.set_default_timeout(60_000)
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))

    def open_(name):
        interactive.write_page(FIGURES[name], tmp_path / "picture.html", "directory")
        page.goto((tmp_path / "picture.html").as_uri())
        page.wait_for_function("document.getElementById('picture')?._fullLayout?._size")
        return page

    yield open_
    page.close()
    assert complaints == []
    assert all(url.startswith("file:") for url in requests)
    assert len(requests) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_browser_tells_the_point_under_the_mouse(open_page, name):
    *point, texts = HOVERED[name]
    page = open_page(name)
    x, y = page.evaluate(PLACE, [float(each) if isinstance(each, np.floating) else each for each in point])
    page.wait_for_timeout(200)
    page.mouse.move(x - 3, y - 3)
    page.mouse.move(x, y, steps=3)
    page.wait_for_selector(".hovertext")
    told = " ".join(page.locator(".hovertext").all_text_contents())
    assert all(text in told for text in texts), told


@pytest.mark.slow
def test_clicks_hide_a_kind_change_the_axis_and_move_through_training(open_page):
    page = open_page("curves")
    shown = "document.getElementById('picture')._fullData.map(trace => trace.visible)"
    page.locator(".legendtoggle").first.click()
    page.wait_for_function(f"{shown}.filter(each => each === true).length === 6")
    page.get_by_text("log axis").click()
    page.wait_for_function("document.getElementById('picture')._fullLayout.xaxis2.type === 'log'")
    assert page.get_by_role("figure").get_attribute("aria-label") == FIGURES["curves"].layout.title.text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention_patterns", "loss_surface"])
def test_a_switch_shows_another_group(open_page, name):
    page = open_page(name)
    if name == "loss_surface":
        page.locator(".updatemenu-header").click()
        page.locator(".updatemenu-dropdown-button").first.click()
    else:
        rail = page.locator(".slider-rail-touch-rect")
        rail.scroll_into_view_if_needed()
        rail = rail.bounding_box()
        page.mouse.click(rail["x"] + 2, rail["y"] + rail["height"] / 2)
    page.wait_for_function("document.getElementById('picture')._fullData[0].visible === true")
    assert not page.evaluate("document.getElementById('picture')._fullData.at(-1).visible")


def test_a_missing_margin_moves_no_text_to_another_cell():
    table = pd.DataFrame({"length": 3, "query": [0, 0, 1], "answer": [1, 2, 0], "margin": [math.nan, -1.0, math.nan]})
    table = table.assign(verdict=["proved", "refuted", "proved"], worst=[[], [0, 2, 0], []])
    [grid] = interactive.worst_sequences(table).data
    assert list(grid.y) == ["0", "1"]
    assert list(grid.customdata[0, 2]) == ["refuted", "0 2 0"]
    interactive.worst_sequences(table.assign(margin=math.nan))
