"""From names to runs, pictures and a ledger, at smoke scale."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ihlab.paper.figures import FIGURES as LISTED
from ihlab.paper.page import result_folders
from ihlab.paper.studies.registry import EXPERIMENTS
from ihlab.paper.studies.reproduce import reproduce
from ihlab.study.claim import judged
from ihlab.study.experiment import SCALES, Experiment
from ihlab.study.ledger import Folder, summary_text
from ihlab.study.markdown import MARKS
from tasks import ConfigError

pytestmark = pytest.mark.slow

FIGURES = Path(__file__).parents[3] / "figures"


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    root = tmp_path_factory.mktemp("reproduce")
    console = Console(record=True, width=160)
    folders = reproduce(["figure1b"], "smoke", jobs=2, runs=root / "runs", figures=root / "figures", console=console)
    return root, folders, console.export_text()


def test_every_file_is_there(reproduced):
    _, [folder], _ = reproduced
    names = {path.name for path in folder.path.iterdir()}
    assert names == {
        "data.csv", "curves.csv", "claims.json", "summary.md", "manifest.json", "figure1b-smoke.svg",
    }  # fmt: skip
    page = (folder.root / "figure1b" / "README.md").read_text(encoding="utf-8")
    assert (folder.path / "summary.md").read_text(encoding="utf-8").strip() in page.replace("\\", "")


def test_the_table_holds_every_seed_of_every_curve(reproduced):
    _, [folder], _ = reproduced
    data, curves = folder.data(), folder.curves()
    assert data.groupby("curve")["seed"].nunique().tolist() == [2] * 6
    known = ["curve", "lr", "seed"]
    assert list(curves.columns) == [
        *known, "step", "tokens", "train_loss", "eval_loss", "accuracy", "accuracy_first"
    ]  # fmt: skip
    assert len(data) == 12
    assert curves["step"].max() == 22
    last = curves.groupby(known, sort=False)["accuracy_first"].last()
    assert data.set_index(known)["final"].to_dict() == pytest.approx(last.to_dict())
    half = data.groupby("curve")["n_params"].first()
    assert half["vanilla, 2 layers, hidden size 8"] > 1.9 * half["KV shifting, 1 layer, hidden size 8"]


def test_the_ledger_shows_every_claim_and_verdict(reproduced):
    _, [folder], printed = reproduced
    for claim in folder.claims():
        assert claim["verdict"] in printed
        assert claim["verdict"] in MARKS
        assert claim["seeds"] == 2
    assert "12 runs and 1 figures" in printed


def test_the_manifest_has_runs_devices_and_versions(reproduced):
    root, [folder], _ = reproduced
    manifest = json.loads((folder.path / "manifest.json").read_text())
    assert manifest["runs"] == len(list((root / "runs").iterdir()))
    assert (manifest["scale"], len(manifest["devices"])) == ("smoke", 1)
    assert manifest["versions"]["torch"]
    assert str(root) not in json.dumps(manifest)


def test_a_second_time_trains_nothing_and_changes_nothing(reproduced):
    root, [folder], _ = reproduced
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    stamps = {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("done.json")}
    reproduce(["figure1b"], "smoke", jobs=1, runs=root / "runs", figures=root / "figures", console=Console(quiet=True))
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
    assert {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("done.json")} == stamps


def test_redrawing_needs_no_torch_and_gives_the_same_files(smoke_root, tmp_path):
    figures = shutil.copytree(smoke_root / "figures", tmp_path / "figures")
    before = {path: path.read_bytes() for path in figures.rglob("*") if path.is_file()}
    derived = [path for path in before if path.suffix in (".svg", ".md") or path.name == "claims.json"]
    names = sorted({path.parents[1].name for path in before if path.name == "data.csv"})
    assert len(derived) >= 3 * len(names) + 1  # and the page of results
    for path in derived:
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["figure1c"]}, "There is no experiment 'figure1c'; did you mean 'figure1"),
        ({"scale": "laptpo"}, "There is no scale 'laptpo'; did you mean 'laptop'"),
        ({"jobs": 0}, "jobs is 0, but must be at least 1"),
        ({"names": ["figure1a"], "from_data": True}, "There is no .*data.csv to draw from"),
        ({"names": ["figure4"], "interactive": True}, "figure4 has no interactive picture: leave out --interactive"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(tmp_path, arguments, message):
    with pytest.raises(ConfigError, match=message):
        reproduce(**arguments, runs=tmp_path / "runs", figures=tmp_path / "figures", console=Console(quiet=True))
    assert list(tmp_path.iterdir()) == []


def test_a_stored_figure_is_written_as_a_page_beside_one_library(tmp_path):
    shutil.copytree(FIGURES / "figure8", tmp_path / "figure8")
    shutil.copytree(FIGURES / "pairs", tmp_path / "pairs")
    console = Console(record=True, width=200)
    reproduce(["figure8", "pairs"], figures=tmp_path, from_data=True, interactive=True, console=console)
    for name in ("figure8", "pairs"):
        page = tmp_path / name / "laptop" / f"{name}-laptop.html"
        assert page.stat().st_size < 100_000
        assert '<script charset="utf-8" src="plotly.min.js">' in page.read_text(encoding="utf-8")
        assert page.with_name("plotly.min.js").stat().st_size < 6e6
        assert f"To explore: {page}" in console.export_text(clear=False)


def test_every_view_of_dots_or_curves_can_be_explored_and_says_what_it_answers():
    explored = {name: each for name, each in EXPERIMENTS.items() if each.has_interactive}
    assert {"figure1a", "figure1b", "figure2", "figure8", "figure9", "mqar", "checker"} <= explored.keys()
    for name, experiment in explored.items():
        figure = experiment.draw_interactive(Folder(FIGURES, name, "laptop").pictured(), "laptop")
        assert figure.data
        assert figure.layout.title.text
    pairs = EXPERIMENTS["pairs"]
    figure = pairs.draw_interactive(Folder(FIGURES, "pairs", "laptop").data(), "laptop")
    told = " ".join(trace.hovertemplate or "" for trace in figure.data)
    assert [ask.id for ask in pairs.asks if ask.id not in told] == []


# Every study


def test_what_is_made_without_names():
    usual = ["figure1a", "figure1b", "figure2", "figure8", "figure9", "table5"]
    assert [name for name, figure in LISTED.items() if figure.by_default] == usual
    assert list(LISTED) == list(EXPERIMENTS)  # each under its own name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_study_plans_every_run_once(name):
    assert isinstance(EXPERIMENTS[name], Experiment)
    for scale in getattr(EXPERIMENTS[name], "scales", SCALES):
        digests = [plan.config.digest for plan in EXPERIMENTS[name].runs(scale)]
        assert len(set(digests)) == len(digests), scale
    assert digests


@pytest.mark.parametrize("folder", result_folders(FIGURES, tuple(EXPERIMENTS)), ids=lambda folder: folder.experiment)
def test_committed_claims_and_summaries_follow_from_the_committed_tables(folder):
    study, data = EXPERIMENTS[folder.experiment], folder.data()
    claims, stored = [claim.to_dict() for claim in judged(study.claims(data, folder.scale))], folder.claims()
    assert claims == stored
    is_table = folder.summary().startswith("| ")
    assert is_table or len(re.findall(r"\d[\d.,]*", folder.summary())) <= 6
    assert summary_text(study.summary(folder.pictured(), folder.scale)) == f"{folder.summary()}\n"
