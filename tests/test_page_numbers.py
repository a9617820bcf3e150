"""Numbers that pages state are those of the code and of stored tables."""

import re
from pathlib import Path

import pytest

from ihlab import kept
from ihlab.hf.conformance.shifted import CHECKS
from ihlab.suite.bench import settings
from ihlab.suite.constructed import HAND_SET
from ihlab.suite.entries import read_entries
from ihlab.suite.leaderboard import RANKS, scores_table, summary
from tests.test_recipes import RECIPES, block

ROOT = Path(__file__).parents[1]
WORDS = {7: "seven", 11: "eleven", 12: "twelve", 15: "fifteen"}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "sentence", "count"),
    [
        ("guides/analyse.md", r"(\w+) trained runs come with", len(set(map(kept.path, kept.names())))),
        ("guides/suite.md", r"(\w+) with \[weights set by hand\]", len(HAND_SET)),
        ("conformance.md", r"pass (\w+) more checks", len(CHECKS)),
        ("recipes/README.md", r"(\w+) complete scripts", len(RECIPES)),
    ],
)  # fmt: skip
def test_counts(name, sentence, count):
    [word] = re.findall(sentence, page(name))
    assert word.lower() == WORDS[count]


def test_lines_of_recipes():
    shown = re.findall(r"\((\d\d_\w+)\.md\) \| (\d+) \|", page("recipes/README.md"))
    assert shown == [
        (path.stem, str(len(re.findall(r"^.*\S", block(path, "python"), flags=re.M))))
        for path in RECIPES
    ]


@pytest.mark.slow
def test_methods_of_the_attribution_guide():
    entries = read_entries((ROOT / "benchmarks" / "entries").glob("*.json"))
    table = settings().query("ranked and nodes == 'head'")
    means = summary(entries.values(), table).set_index("method")
    first = scores_table(entries.values()).merge(table[["key"]]).groupby("method")["first"].sum()
    rows = re.findall(
        r"`\"([\w-]+)\"` \| ([-.\d]+), ([.\d]+), ([.\d]+) \| ([.\d]+), ([.\d]+) \| (\d+)",
        page("attribution.md"),
    )
    assert len(rows) >= 4
    for method, *numbers in rows:
        right = [*means.loc[method, [*RANKS, "regret", "worst_regret"]], first[method]]
        assert [float(number) for number in numbers] == pytest.approx(right, abs=0.0051), method
