"""A written page runs plotly's scripts and no other."""

import pandas as pd
import plotly.graph_objects as go
import pytest

from ihlab.plots.interactive import write_page

pytestmark = pytest.mark.slow

EVIL = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"


@pytest.mark.parametrize("plotlyjs", ["directory", True])
def test_a_browser_runs_no_text_of_a_figure(browser, tmp_path, plotlyjs):
    table = pd.DataFrame({"x": [1, 2], "text": [EVIL, "<a href='javascript:1'>a</a>"]})
    figure = go.Figure(
        go.Scatter(x=table["x"], y=table["x"], text=table["text"], mode="text")
    ).update_layout(title=EVIL)
    path = tmp_path / "picture.html"
    write_page(figure, path, plotlyjs)
    planted = path.read_text(encoding="utf-8").replace(
        "</main>", f"{EVIL}</main>"
    )  # as an unescaped text would
    path.write_text(planted, encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("#picture .main-svg")
    page.wait_for_timeout(200)
    assert page.title() == EVIL
    page.close()
