"""The page in a real browser, held against the model: what is drawn, and the numbers on it."""

import re
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import torch

from tests.viewer.test_data import ROW

pytestmark = pytest.mark.slow


@lru_cache
def cached(run, step):
    _, cache = run.model(step).run_with_cache(torch.tensor([ROW]))
    return cache


def shown_by_loops(run, step, layer, head, view):
    """What a view shows [query, key], one entry at a time from the model's raw pattern and beta, or
    q and raw k.
    """
    model, cache = run.model(step), cached(run, step)
    attn, n, g = model.layers[layer].attn, len(ROW), head // 2
    pattern, beta = cache["pattern", layer][0, head], attn.beta[g].detach()
    shown = np.zeros((n, n))
    for q in range(n):
        for k in range(q + 1):
            if view == "raw":
                shown[q, k] = pattern[q, k]
            if view == "effective":
                shown[q, k] = pattern[q, k] * beta[0]
            if view in ("effective", "value2") and k < q:
                shown[q, k] += pattern[q, k + 1] * beta[1]
            if view == "key2" and k > 0:
                moved = torch.zeros(1, n, 2, attn.d_head)
                moved[0, k] = cache["k_raw", layer, "attn"][0, k - 1] * attn.alpha[g, 1].detach()
                rotated = attn.rotary(moved)[0, k, g]
                shown[q, k] = cache["rot_q", layer][0, q, head] @ rotated / attn.d_head**0.5
    return shown


def number(text):
    """A number as the page writes it, and half of its last digit."""
    digits = text.replace("−", "-")
    return float(digits), 0.5 * 10.0 ** -len(digits.partition(".")[2])


def chosen_head(page):
    name = page.locator(".head[aria-pressed=true] b").inner_text()
    return tuple(int(part) for part in name.split("."))


def hover(page, query, key):
    box = page.locator("#pattern").bounding_box()
    cell = box["width"] / len(ROW)
    page.mouse.move(box["x"] + (key + 0.5) * cell, box["y"] + (query + 0.5) * cell)
    return page.locator("#tip")


def pixels(page):
    """Red, green, blue and opacity [y, x, 4] of a canvas."""
    script = """canvas => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        return [canvas.width, ...copy.getImageData(0, 0, canvas.width, canvas.height).data];
    }"""
    width, *data = page.locator("#pattern").evaluate(script)
    return np.array(data).reshape(-1, width, 4)


@pytest.mark.parametrize("view", ["raw", "effective", "value2", "key2"])
def test_hover_shows_the_token_and_the_models_number(show, run, view):
    page = show(run, "t{}".format)
    page.locator(f"input[value={view}]").check()
    page.locator(".head").nth(5).click()
    assert chosen_head(page) == (1, 1)
    true = stored = shown_by_loops(run, 20, 1, 1, view)
    times = 1
    if view in ("effective", "value2"):  # the page weights what it has stored
        stored = shown_by_loops(run, 20, 1, 1, "raw")
        times = run.model(20).layers[1].attn.beta[0].abs().sum().item()
    for query, key in ((0, 0), (4, 1), (7, 7), (11, 3), (11, 10)):
        tip = hover(page, query, key)
        value, half_digit = number(tip.locator("b").inner_text())
        error = times * np.ptp(stored[query, : query + 1]) / 510
        assert value == pytest.approx(true[query, key], abs=error + half_digit + 1e-6)
        said = f"query {query} ‘t{ROW[query]}’ → key {key} ‘t{ROW[key]}’"
        assert tip.locator("span").inner_text() == said
    assert hover(page, 2, 5).locator("b").inner_text() == "not seen, it comes later"


def test_the_slider_moves_picture_and_numbers(show, run):
    page = show(run)
    assert page.locator("#at-step").inner_text() == "20"
    last, weights = pixels(page), page.locator("#weights").inner_text()
    page.locator("#step").focus()
    page.keyboard.press("Home")
    assert page.locator("#at-step").inner_text() == "0"
    assert page.locator("#at-loss").inner_text() == "3.000"
    assert not np.array_equal(pixels(page), last)
    assert page.locator("#weights").inner_text() != weights
    page.keyboard.press("ArrowRight")
    assert page.locator("#at-step").inner_text() == "10"


def test_legend_ends_at_the_largest_weight_of_all_steps_and_heads(show, run):
    page = show(run)
    for shown in ("raw", "effective"):
        page.locator(f"input[value={shown}]").check()
        places = product(run.checkpoints, range(2), range(4))
        every = [shown_by_loops(run, *place, shown) for place in places]
        size, signed = np.abs(every).max(), np.min(every) < 0
        ticks = [number(text)[0] for text in page.locator("#legend-ticks span").all_inner_texts()]
        expected = [-size, -size / 4, 0, size / 4, size] if signed else [0, size / 4, size]
        assert ticks == pytest.approx(expected, abs=0.01)
    assert signed  # or the second half of the test shows nothing


def test_token_text_stays_text(show, run):
    evil = (
        "<script>window.hacked = 1</script>",
        "</script><img src=x onerror='window.hacked=1'>",
        "<b>bold</b>",
    )
    words = {3: evil[0], 4: evil[1], 5: evil[2], 7: "7"}
    page = show(run, words)
    assert page.locator(".token").all_text_contents() == [words[i] for i in ROW]
    page.locator(".token").nth(1).hover()
    assert (
        hover(page, 1, 0).locator("span").inner_text() == f"query 1 ‘{evil[1]}’ → key 0 ‘{evil[0]}’"
    )
    assert page.locator("body img, body b b, body svg script").count() == 0
    assert page.evaluate("window.hacked") is None


def test_the_plane_marks_alpha1_and_beta1_of_the_step_on_the_field(show, run):
    page = show(run)
    page.locator(".head").nth(3).click()  # the second head of key/value head 1
    attn = run.model(20).layers[0].attn
    alpha, beta = attn.alpha[1].tolist(), attn.beta[1].tolist()
    written = page.locator("#weights").inner_text().replace("−", "-")
    numbers = list(map(float, re.findall(r"-?\d+\.\d+", written)))
    assert numbers == pytest.approx([*alpha, *beta], abs=0.0051)
    frame, now = page.locator("#path .axis"), page.locator("#path .now")
    left, top, width = (float(frame.get_attribute(name)) for name in ("x", "y", "width"))
    field = page.evaluate("JSON.parse(document.getElementById('data').textContent).field")
    side = field["high"] - field["low"]
    x, y = (alpha[0] - field["low"]) / side, (field["high"] - beta[0]) / side
    assert float(now.get_attribute("cx")) == pytest.approx(left + x * width)
    assert float(now.get_attribute("cy")) == pytest.approx(top + y * width)


def test_heads_are_sorted_by_a_score_and_filtered_by_layer(show):
    """Three layers of four heads: one attends to the token before, the others spread their
    attention.
    """
    patterns = torch.ones(3, 4, 12, 12).tril()
    patterns[2, 1] = torch.eye(12).roll(1, dims=0)
    patterns[2, 1, 0] = torch.eye(12)[0]
    patterns = patterns / patterns.sum(dim=-1, keepdim=True)
    page = show(patterns)
    names = page.locator(".head b")
    assert names.all_inner_texts() == [f"{layer}.{head}" for layer in range(3) for head in range(4)]
    page.locator("#order").select_option(label="by previous token")
    assert names.all_inner_texts()[0] == "2.1"
    assert names.count() == 12
    page.locator("#least").fill("0.5")
    assert names.all_inner_texts() == ["2.1"]
    page.locator("#layer").select_option(label="layer 0")
    assert names.count() == 0
    page.locator("#order").select_option(label="by layer")
    assert names.all_inner_texts() == ["0.0", "0.1", "0.2", "0.3"]
