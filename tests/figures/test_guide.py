"""The guide names every figure that is made only if it is named."""

import json
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


def test_its_minutes_are_those_of_the_manifests():
    found = re.findall(r"^\| `(\w+)` \|.*\| (\d+) min \|$", GUIDE.read_text("utf-8"), flags=re.M)
    assert len(found) > 5
    for name, minutes in found:
        [manifest] = (ROOT / "figures").rglob(f"{name}/manifest.json")
        seconds = json.loads(manifest.read_text("utf-8"))["training_seconds"]
        assert int(minutes) == round(seconds / 2 / 60), name
