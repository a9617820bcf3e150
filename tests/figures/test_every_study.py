"""What all live studies have in common, and the committed figures against the committed tables."""

import re
import shutil
import subprocess
import sys

import pytest
from rich.console import Console

from ihlab.study.claim import judged
from ihlab.study.experiment import SCALES, Experiment
from ihlab.study.find import declared, stored
from ihlab.study.ledger import Folder, summary_text
from ihlab.study.reproduce import reproduce
from tests.figures.live import FIGURES, HOMES, copy_code, live

pytestmark = pytest.mark.slow


def test_redrawing_needs_no_torch_and_gives_the_same_files(smoke_root, tmp_path):
    figures = shutil.copytree(smoke_root / "figures", tmp_path / "figures")
    before = {path: path.read_bytes() for path in figures.rglob("*") if path.is_file()}
    names = sorted({path.parents[1].name for path in before if path.name == "data.csv"})
    derived = [path for path in before if path.suffix in (".svg", ".md")]
    assert len(derived) >= 3 * len(names)
    for path in derived + [path for path in before if path.name == "claims.json"]:
        path.unlink()
    script = """
import sys
from ihlab.cli import main
main(sys.argv[1:])
assert "torch" not in sys.modules, "redrawing imported torch"
"""
    arguments = ["reproduce", *names, "--scale", "smoke", "--from-data", "--figures", str(figures)]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True)
    assert {path: path.read_bytes() for path in figures.rglob("*") if path.is_file()} == before


@pytest.mark.rare
@pytest.mark.parametrize("name", HOMES)
def test_a_study_is_made_at_smoke_scale(name, tmp_path):
    figures, quiet = copy_code([name], tmp_path / "figures"), Console(quiet=True)
    [folder] = reproduce([name], "smoke", runs=tmp_path / "runs", figures=figures, console=quiet)
    assert folder.picture.exists()
    assert folder.data()["seed"].isin(range(2)).any()


@pytest.mark.parametrize("name", ["figure1a", "figure1b", "figure2", "figure8", "figure9"])
def test_a_picture_of_a_studys_own_can_be_explored(name):
    figure = live()[name].draw_interactive(Folder(HOMES[name]).pictured(), "laptop")
    assert figure.data
    assert figure.layout.title.text


def test_what_is_made_without_names():
    usual = ["figure1a", "figure1b", "figure2", "figure8", "figure9", "table5"]
    assert sorted(name for name, found in declared(FIGURES).items() if found.by_default) == usual


@pytest.mark.parametrize("name", HOMES)
def test_a_study_plans_every_run_once(name):
    assert isinstance(live()[name], Experiment)
    for scale in getattr(live()[name], "scales", SCALES):
        digests = [plan.config.digest for plan in live()[name].runs(scale)]
        assert len(set(digests)) == len(digests), scale
    assert digests


@pytest.mark.parametrize("name", HOMES)
def test_committed_claims_and_summaries_follow_from_the_committed_tables(name):
    folder, study = Folder(HOMES[name]), live()[name]
    claims = judged(study.claims(folder.data(), folder.scale))
    assert [claim.to_dict() for claim in claims] == folder.claims()
    is_table = folder.summary().startswith("| ")
    assert is_table or len(re.findall(r"\d[\d.,]*", folder.summary())) <= 6
    assert summary_text(study.summary(folder.pictured(), folder.scale)) == f"{folder.summary()}\n"


@pytest.mark.parametrize("name", sorted(stored(FIGURES).keys() - HOMES.keys()))
def test_the_tables_of_a_frozen_figure_are_those_of_its_manifest(name):
    folder = Folder(stored(FIGURES)[name])
    assert len(folder.pictured())


def test_no_study_imports_another_and_the_library_imports_none():
    for file in FIGURES.glob("*/*.py"):
        imported = re.findall(
            r"^\s*(?:from|import) (figures\S*|\.\.\S*)", file.read_text(encoding="utf-8"), re.M
        )
        assert not imported, f"{file} imports {imported}"
