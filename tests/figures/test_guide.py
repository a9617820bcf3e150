"""The guide names every figure that is made only if it is named."""

import re
from pathlib import Path

from ihlab.study.find import declared

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "reproduce.md"


def test_the_guide_names_every_figure():
    [rows] = re.findall(
        r"^\| name \|.*\n.*\n((?:\|.*\n)*)", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    names = [
        name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert sorted(names) == sorted(
        name for name, figure in declared(ROOT / "figures").items() if not figure.by_default
    )
