"""The live studies of the repository, and copies of their code for tests that make figures."""

import shutil
from functools import cache
from pathlib import Path

from ihlab.study.find import declared, home, study

FIGURES = Path(__file__).parents[2] / "figures"
FILES = {name: found.file for name, found in declared(FIGURES).items()}
HOMES = {name: home(name, file) for name, file in FILES.items()}

MADE = ("README.md", "*.svg", "*.json", "data.csv", "curves.csv", "summary.md")


@cache
def live():
    """Every live study by its name."""
    return {name: study(name, FIGURES) for name in FILES}


def copy_code(names, figures: Path) -> Path:
    """Copy the study files of some figures, and the files beside them, into another folder of
    figures.
    """
    for family in {FILES[name].parent for name in names}:
        shutil.copytree(
            family, figures / family.name, ignore=shutil.ignore_patterns(*MADE, "__pycache__")
        )
    return figures
