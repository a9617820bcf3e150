"""The page in a real browser, beyond patterns: predictions, tags, rows, readers of a key, overlays,
links, pictures.
"""

import re
import xml.etree.ElementTree as ET
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from ihlab.viewer import view
from tests.viewer.test_browser import cached, chosen_head, hover, number, pixels, shown_by_loops
from tests.viewer.test_data import ROW

pytestmark = pytest.mark.slow


def numbers(page, selector):
    return [number(text)[0] for text in page.locator(selector).all_inner_texts()]


def test_hovering_a_token_tells_what_is_predicted_there(show, run):
    page = show(run, "t{}".format)
    page.locator(".token").nth(4).hover()
    chances = run.model(20)(torch.tensor([ROW]))[0, 4].softmax(-1)
    top = chances.topk(5)
    words = [f"t{i}" for i in range(40)]
    expected = [words[i] for i in top.indices.tolist()]
    assert page.locator("#predictions .text").all_inner_texts() == expected
    assert numbers(page, "#predictions .number") == pytest.approx(top.values.tolist(), abs=6e-4)
    chance = chances[ROW[5]].item()
    asked = f"next token ‘{words[ROW[5]]}’: probability {chance:.3f}, loss {-np.log(chance):.3f}"
    assert page.locator("#asked").inner_text() == asked
    assert page.locator("#tip b").inner_text() == "4 ‘t4’"
    assert page.locator("#tip span").nth(1).inner_text() == asked
    page.locator(".token").nth(11).hover()
    assert page.locator("#asked").inner_text() == "The sequence ends here."


def assert_lists(page, name, weights):
    """A list has the largest of the weights at the tokens' places, the largest first."""
    places = [int(text) for text in page.locator(f"{name} .place").all_inner_texts()]
    found = numbers(page, f"{name} .number")
    assert found == sorted(found, reverse=True)
    assert found == pytest.approx(weights[places].tolist(), abs=0.005)
    assert found[0] == pytest.approx(weights.max(), abs=0.005)


def test_who_attends_to_a_key_is_listed_and_shades_the_row(show, run):
    page = show(run, fragment="#view=raw")
    layer, head = chosen_head(page)
    pattern = cached(run, 20)["pattern", layer][0, head].numpy()
    page.locator(".token").nth(8).hover()
    assert page.locator("#attended-title").inner_text() == "Where 8 ‘5’ attends"
    assert_lists(page, "#attended", pattern[8])
    page.get_by_label("Attended from").check()
    page.locator(".token").nth(3).hover()
    assert page.locator("#readers-title").inner_text() == "What attends to 3 ‘3’"
    assert_lists(page, "#readers", pattern[:, 3])
    # From the list of what a query attends to, a click leads to who else reads that key.
    first = page.locator("#attended li button").first
    key = int(first.locator(".place").inner_text())
    first.click()
    assert page.locator("#readers-title").inner_text() == f"What attends to {key} ‘{ROW[key]}’"


def test_value_weighted_patterns_are_times_the_norm_of_the_value(show, run):
    page = show(run)
    page.locator("input[value=value2]").check()
    page.get_by_label("Value-weighted").check()
    page.locator(".head").nth(5).click()
    cache = cached(run, 20)
    norms = cache["v_raw", 1, "attn"][0, :, 0].norm(dim=-1).detach().numpy()
    true = shown_by_loops(run, 20, 1, 1, "value2") * norms
    for query, key in ((4, 1), (7, 7), (11, 3)):
        amount, unit = hover(page, query, key).locator("b").inner_text().split(" ", 1)
        assert unit == "(weight × ‖v‖)"
        value, half_digit = number(amount)
        assert value == pytest.approx(
            true[query, key], abs=half_digit + 0.02 * np.abs(true[query]).max()
        )
    page.locator("input[value=key1]").check()
    assert page.get_by_label("Value-weighted").is_disabled()


def test_heads_overlay_each_in_its_colour(show, run):
    page = show(run, fragment="#view=raw")
    page.locator(".head").first.click()
    page.get_by_label("Overlay heads").check()
    alone = pixels(page)
    page.locator(".head").nth(5).click()
    assert page.locator("#picture-title").inner_text().startswith("Heads 0.0, 1.1 · raw")
    both = pixels(page)
    lower = np.tril_indices(12)
    assert (both[lower][:, :3] <= alone[lower][:, :3]).all()  # in the light each head is an ink
    assert (both != alone).any()
    shown = [shown_by_loops(run, 20, layer, head, "raw") for layer, head in ((0, 0), (1, 1))]
    said = re.fullmatch(r"0\.0 (\S+), 1\.1 (\S+)", hover(page, 7, 4).locator("b").inner_text())
    assert [float(text) for text in said.groups()] == pytest.approx(
        [each[7, 4] for each in shown], abs=0.01
    )
    page.locator(".head").first.click()  # a second click takes one away
    assert page.locator("#overlaid").inner_text().split() == ["1.1"]


def test_pages_of_patterns_leave_out_what_they_do_not_know(show):
    page = show(torch.ones(2, 1, 5, 5).tril(), tokens="the cat sat the cat".split())
    for hidden in (
        "#time",
        "#views",
        "#value-choice",
        "#predictions-panel",
        "#plane-panel",
        "#row-choice",
    ):
        assert page.locator(hidden).is_hidden(), hidden
    assert page.locator(".token").all_inner_texts() == "the cat sat the cat".split()
    assert page.locator("rect.stripe").count() == 2
    page = show(torch.ones(1, 3, 3), tokens="a b c".split())
    assert pixels(page)[:, :, 3].min() == 255  # every key is seen


def test_a_link_opens_on_what_was_shown(show, run):
    page = show(run, tokens=[ROW, ROW[:7]])
    page.locator("#row").select_option("1")
    page.locator("#step").focus()
    page.keyboard.press("Home")
    page.locator("input[value=effective]").check()
    for toggle in ("#value", "#stripe", "#overlay"):
        page.locator(toggle).click()
    page.locator(".head").nth(6).click()
    page.get_by_label("Attended from").check()
    page.locator(".token").nth(2).click()
    page.locator("#link").click()
    link = page.locator("#link-text").input_value()
    asked = parse_qs(urlparse(link).fragment)
    assert asked.items() >= {"row": ["1"], "step": ["0"], "view": ["effective"]}.items()
    page.wait_for_function("link => location.href === link", arg=link)  # the address is the link
    seen = "main, #tokens, #measured, #explained"
    before = page.locator(seen).all_inner_texts(), pixels(page).tolist()
    again = show(run, tokens=[ROW, ROW[:7]], fragment="#" + urlparse(link).fragment)
    again.locator("#picture-title").hover()
    assert (again.locator(seen).all_inner_texts(), pixels(again).tolist()) == before
    again.evaluate("location.hash = '#step=20&view=raw'")  # a link followed on the page itself
    expect(again.locator("#at-step")).to_have_text("20")


def saved(page, folder):
    """The picture that a click on the button saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Save SVG").click()
    download.value.save_as(folder / "saved.svg")
    assert download.value.suggested_filename.endswith(".svg")
    return ET.parse(folder / "saved.svg").getroot()


def test_the_picture_is_saved_as_svg(show, run, tmp_path):
    page = show(run, {3: "<b>", 4: "&", 5: "\x08"})  # byte tokens have control characters
    root = saved(page, tmp_path)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    cells = [each for each in root.iter(f"{space}rect") if each.get("class") == "cell"]
    picture = pixels(page)
    drawn = [[int(c) for c in re.findall(r"\d+", cell.get("fill"))] for cell in cells]
    assert drawn == [picture[q, k, :3].tolist() for q in range(12) for k in range(q + 1)]
    assert (
        sum(each.get("class") == "stripe" for each in root.iter())
        == page.locator("rect.stripe").count()
    )
    texts = [each.text for each in root.iter(f"{space}text")]
    assert texts[0].endswith("effective, step 20")
    for text, i in (("<b>", 3), ("&", 4), ("\ufffd", 5)):
        assert texts.count(text) == 2 * ROW.count(i)  # beside the picture and above it


def test_a_notebooks_frame_saves_pictures(browser, run):
    page = browser.new_page()
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    html = view(run, ROW)._repr_html_()
    assert 'sandbox="allow-scripts allow-downloads"' in html
    page.set_content(f"<!doctype html><body>{html}</body>")
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready]").wait_for()
    assert frame.locator(".token").count() == len(ROW)
    with page.expect_download() as download:
        frame.locator("#save").click()
    assert download.value.suggested_filename.endswith(".svg")
    assert [text for text in complaints if "clipboard" not in text.lower()] == []
    page.close()
