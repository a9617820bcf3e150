"""Every recipe runs as printed, in an empty folder, and prints what its page shows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "docs" / "recipes").glob("[0-9]*.md"))
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e-?\d+)?")


def block(page: Path, language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)
    return str(found)


def words(text: str) -> list[str]:
    return NUMBER.sub("#", text).split()


@pytest.mark.slow
@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_prints_what_its_page_shows(page, tmp_path, monkeypatch, capsys):
    """Words agree. Numbers agree within 10% or .05, because trained models differ between machines."""
    monkeypatch.chdir(tmp_path)
    exec(compile(block(page, "python"), page.name, "exec"), {"__name__": "__main__"})
    printed, shown = capsys.readouterr().out, block(page, "text")
    assert words(printed) == words(shown)
    got, expected = ([float(n) for n in NUMBER.findall(text)] for text in (printed, shown))
    assert got == pytest.approx(expected, rel=0.1, abs=0.05)


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_has_5_to_18_lines(page):
    lines = [line for line in block(page, "python").splitlines() if line.strip()]
    assert 5 <= len(lines) <= 18
    assert max(map(len, lines)) <= 100


def test_the_index_names_all():
    index = (ROOT / "docs" / "recipes" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\((\d\d_\w+\.md)\)", index) == [page.name for page in RECIPES]
