"""The HTML: nothing in it loads, only its own script runs, token text stays data."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from ihlab.viewer import view, write_view

EVIL = ["<script>alert(1)</script>", "</script>", "<!--<script>", "&lt;", '"', "\u2028"]
ROW = [3, 4, 5, 3, 4, 5]


@pytest.fixture(scope="module")
def page(run):
    return view(run, range(6), dict(enumerate(EVIL))).html


def element(page, name, attributes=""):
    return re.search(rf"<{name}{attributes}>(.*?)</{name}>", page, re.DOTALL)[1]


def test_a_title_that_is_no_text_is_written_escaped(run, tmp_path):
    written = write_view(run, tmp_path / "page.html", ROW, title="r\udce9sum\udce9.txt")
    assert r"<title>r\udce9sum\udce9.txt" in written.read_text(encoding="utf-8")


def test_policy_allows_its_own_style_and_script_by_hash_and_nothing_else(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    allowed = dict(rule.split(" ", 1) for rule in policy.split("; "))
    hashed = {
        name: f"'sha256-{base64.b64encode(hashlib.sha256(element(page, tag).encode()).digest()).decode()}'"
        for name, tag in (("script-src", "script"), ("style-src", "style"))
    }
    assert allowed == {"default-src": "'none'", "base-uri": "'none'", **hashed}


def test_token_text_cannot_leave_the_data(page):
    assert page.count("<script") == page.count("</script") == 2  # the data and the page's own
    data = json.loads(element(page, "script", ' type="application/json" id="data"'))
    assert data["rows"][0]["tokens"] == EVIL


def test_the_file_is_the_page_and_the_same_each_time(run, tmp_path):
    first = write_view(run, tmp_path / "a" / "view.html", ROW)
    second = write_view(run, str(tmp_path / "b.html"), ROW)
    assert first == tmp_path / "a" / "view.html"
    assert first.read_text(encoding="utf-8") == view(run, ROW).html
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "viewer.md"
    names = {}
    for example in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(example, names)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine.html",
        "patterns.html",
        "run.html",
    ]
