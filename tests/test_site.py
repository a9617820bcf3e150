"""The site is built without a broken link, and every page has its own title.

A browser draws the pictures to explore, of files alone; without JavaScript the still stands there.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr  # as `make docs`: a broken link fails
    return folder


def test_every_page_has_its_own_title(site):
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    titles = [re.search(r"<title>(.*?)</title>", page.read_text("utf-8"))[1] for page in pages]
    assert not {
        (title, str(page))
        for page, title in zip(pages, titles, strict=True)
        if titles.count(title) > 1
    }
    assert not [title for title in titles if title.startswith("Index")]


EXPLORED = ["figure1a", "figure1b", "figure2", "figure9", "figure8"]
FIGURE_1A = "figures/figure1/figure1a/index.html"
DRAWN = """() => [...document.querySelectorAll("script.explore")].every(
    source => source.nextElementSibling?._fullLayout?._size && !source.previousElementSibling)"""
POINT = """place => {  // a point of the first curve, in pixels of the window
    const {left, top} = place.getBoundingClientRect(), {xaxis, yaxis} = place._fullLayout;
    const {x, y} = place.calcdata[0][9];
    return [left + xaxis._offset + xaxis.d2p(x), top + yaxis._offset + yaxis.d2p(y)];
}"""


@pytest.fixture
def opened(browser, site):
    """Opens pages of the site as files, which must log no error and load nothing but files."""
    complaints, contexts, requests = [], [], []

    def open_page(uri, **options):
        contexts.append(browser.new_context(viewport={"width": 880, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on(
            "console",
            lambda message: complaints.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / uri).as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
    assert not [url for url in requests if not url.startswith(("file:", "data:", "blob:"))]


@pytest.mark.parametrize("uri", [FIGURE_1A, "notebooks/01_figure_1.html"])
def test_hover_tells_the_seed_of_a_point_and_its_value_in_the_table(opened, uri):
    page = opened(uri)
    page.wait_for_function(DRAWN)
    picture = page.locator(".explored").first
    picture.scroll_into_view_if_needed()
    page.mouse.move(*picture.evaluate(POINT))
    text = picture.locator(".hoverlayer .hovertext").first.text_content()
    pattern = (
        r"(.+)seed (\d+), learning rate 0.004training step (\d+)accuracy at the first repeat (.+)"
    )
    curve, seed, step, accuracy = re.fullmatch(pattern, text).groups()
    rows = pd.read_csv(ROOT / "figures/figure1/figure1a/curves.csv").set_index(
        ["curve", "seed", "step"]
    )
    assert float(accuracy) == pytest.approx(
        rows["accuracy_first"][curve, int(seed), int(step)], rel=1e-3
    )


def test_every_picture_to_explore_is_drawn_and_fits_its_page(opened, site):
    pages = sorted(
        page for page in site.glob("*/**/*.html") if 'class="explore"' in page.read_text("utf-8")
    )
    names = [page.parent.name if page.name == "index.html" else page.name[:2] for page in pages]
    assert names == [*EXPLORED, "01", "02", "03", "04", "05", "07", "13", "14"]
    page = opened(FIGURE_1A)
    for path in pages:
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        assert page.evaluate("document.documentElement.scrollWidth") <= 880, path


STILLS = {
    FIGURE_1A: "img[src$='figure1a.svg']",
    "notebooks/13_attribution.html": "img:has(+ .explore)",
}


@pytest.mark.parametrize("uri", STILLS)
def test_without_javascript_the_still_stands_in_the_page(opened, uri):
    page = opened(uri, java_script_enabled=False)
    [still] = page.locator(STILLS[uri]).all()
    assert still.bounding_box()["width"] > 500
    assert page.locator(".explored").count() == 0


def test_llms_txt_has_every_page_of_the_navigation(site):
    text = (site / "llms.txt").read_text("utf-8")
    links = re.findall(r"^- \[(.+)\]\((.+)\)$", text, flags=re.M)
    assert text.startswith("# ihlab\n\n> The induction-head lab")
    assert {"SKILL.html", "AGENTS.html", "docs/proofs.html"} <= {uri for _, uri in links}
    for title, uri in links:
        assert (site / uri).exists()
        assert title
    assert len(links) == len(set(links)) > 100
