"""Store a still beside each picture to explore of saved notebooks: `python notebooks/stills.py NOTEBOOK...`.

A forge and nbconvert run no plotly, and show the still instead. Jupyter and the site show the picture to explore.
"""

import shutil
import sys
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
import plotly
from PIL import Image
from playwright.sync_api import Page, sync_playwright

PLOTLY, STILL = "application/vnd.plotly.v1+json", "image/png"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",
]  # surfaces without a GPU, in a container
WIDTH = 880  # pixels, as wide as a page of the site
COLOURS = 128
"""Number of colours of a still. So it takes a third of the bytes, and looks the same."""

DRAW = """async ({data, layout, width}) => {
    const size = {width, height: layout.height || 450};
    return await Plotly.toImage({data, layout: {...layout, ...size}}, {format: "png", ...size});
}"""
"""JavaScript that returns a plotly picture as the address of a PNG."""


def still(page: Page, picture: dict[str, Any]) -> str:
    """Return a still of a plotly picture: a PNG, in base64. `page` has plotly's library."""
    url = page.evaluate(
        DRAW, {"data": picture["data"], "layout": picture["layout"], "width": WIDTH}
    )
    drawn = Image.open(BytesIO(b64decode(url.partition(",")[2]))).convert("RGB")
    stored = BytesIO()
    drawn.quantize(COLOURS).save(stored, "png", optimize=True)
    return b64encode(stored.getvalue()).decode()


def add_stills(path: Path, page: Page) -> None:
    """Store a still in every output of a notebook that has a picture to explore."""
    notebook = nbformat.read(path, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output.data for output in outputs if PLOTLY in output.get("data", {})]
    for data in pictures:
        data[STILL] = still(page, data[PLOTLY])
    if pictures:
        nbformat.write(notebook, path)


def main(paths: list[str]) -> None:
    """Add stills to notebooks, in headless Chromium."""
    library = Path(plotly.__file__).parent / "package_data/plotly.min.js"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page()
        page.add_script_tag(path=library)
        for path in paths:
            add_stills(Path(path), page)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
