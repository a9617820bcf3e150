"""The one list of columns, and the guide that explains it."""

import re
from pathlib import Path

from ihlab.interp import head_scores
from ihlab.measure.columns import COLUMNS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "analyse.md"


def test_the_guide_explains_every_column_in_the_words_of_the_list():
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \|$", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert rows[: len(COLUMNS)] == [(column.name, column.meaning) for column in COLUMNS]


def test_help_lists_every_column():
    said = " ".join((head_scores.__doc__ or "").split())
    for column in COLUMNS:
        assert f"- {column.name}: {column.meaning}" in said
