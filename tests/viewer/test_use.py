"""The page in a real browser: the keyboard, playing and holding, narrow windows, notebooks, the
policy.
"""

import re

import pytest

from ihlab.viewer import write_view
from tests.viewer.test_data import ROW

pytestmark = pytest.mark.slow


def test_everything_works_from_the_keyboard(show, run):
    page = show(run)
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        focused = "document.activeElement.id || document.activeElement.className || document.activeElement.name"
        reached.append(page.evaluate(focused))
        both = "[document.activeElement, document.activeElement.closest('label')]"  # a hidden radio's label has it
        outlines = page.evaluate(
            f"{both}.map(element => element && getComputedStyle(element).outlineStyle)"
        )
        assert set(outlines) & {"solid", "double"}, reached
    expected = "link save play step view value stripe overlay direction token head picture"
    assert [name.split()[0] for name in reached] == expected.split()

    page.locator(".head").first.click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.locator(".head[aria-pressed=true] b").inner_text() == "1.1"

    page.locator("#picture").focus()
    before = page.locator("#readout").inner_text()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    query, key = (int(at) for at in re.findall(r"(\d+) ‘", before))
    after = page.locator("#readout").inner_text()
    assert [int(at) for at in re.findall(r"(\d+) ‘", after)] == [query - 1, max(key - 1, 0)]

    page.locator(".token").nth(4).focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#attended-title").inner_text() == "Where 5 ‘4’ attends"

    page.locator("input[value=raw]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#views input:checked").get_attribute("value") == "effective"


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(show, make_run, width):
    page = show(make_run(n_heads=8, n_key_value_heads=8), viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_policy_stops_foreign_scripts_and_loads(browser, run, tmp_path):
    page = browser.new_page()
    page.goto(write_view(run, tmp_path / "view.html", ROW).as_uri())
    page.wait_for_selector("body[data-ready]")
    inject = "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    assert page.evaluate(f"{inject}; window.ran") is None
    assert (
        page.evaluate("fetch('data:text/plain,x').then(() => 'loaded', () => 'blocked')")
        == "blocked"
    )
    page.close()
