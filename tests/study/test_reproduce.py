"""From names to runs, pictures and a ledger, at smoke scale."""

import json

import pytest
from rich.console import Console

from ihlab.study.reproduce import reproduce
from tasks import ConfigError
from tests.figures.live import copy_code

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    root = tmp_path_factory.mktemp("reproduce")
    console = Console(record=True, width=160)
    figures = copy_code(["figure1b"], root / "figures")
    folders = reproduce(
        ["figure1b"], "smoke", jobs=2, runs=root / "runs", figures=figures, console=console
    )
    return root, folders, console.export_text()


def test_the_folder_the_ledger_and_the_manifest_are_of_all_runs(reproduced):
    root, [folder], printed = reproduced
    files = ["claims.json", "curves.csv", "data.csv", "figure1b.svg", "manifest.json", "summary.md"]
    assert sorted(path.name for path in folder.path.iterdir()) == files
    page = (folder.home / "README.md").read_text(encoding="utf-8")
    assert folder.summary() in page.replace("\\", "")
    data, curves = folder.data(), folder.curves()
    assert data.groupby("curve")["seed"].nunique().tolist() == [2] * 6
    known = ["curve", "lr", "seed"]
    last = curves.groupby(known, sort=False)["accuracy_first"].last()
    assert data.set_index(known)["final"].to_dict() == pytest.approx(last.to_dict())
    assert all(claim["verdict"] in printed for claim in folder.claims())
    assert "12 runs and 1 figures" in printed
    manifest = json.loads((folder.path / "manifest.json").read_text())
    assert manifest["runs"] == len(list((root / "runs").iterdir())) == 12
    assert manifest["versions"]["torch"]
    assert str(root) not in json.dumps(manifest)


def test_a_second_time_trains_nothing_and_changes_nothing(reproduced):
    root, [folder], _ = reproduced
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    stamps = {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("done.json")}
    reproduce(
        ["figure1b"],
        "smoke",
        jobs=1,
        runs=root / "runs",
        figures=root / "figures",
        console=Console(quiet=True),
    )
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
    assert {path: path.stat().st_mtime_ns for path in (root / "runs").rglob("done.json")} == stamps


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["figure1c"]}, "There is no experiment 'figure1c'; did you mean 'figure1"),
        ({"jobs": 0}, "jobs is 0, but must be at least 1"),
        ({"names": ["figure2"], "from_data": True}, "There is no .*data.csv to draw from"),
        (
            {"names": ["figure4"], "interactive": True},
            "figure4 has no interactive picture: leave out --interactive",
        ),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(tmp_path, arguments, message):
    figures = copy_code(["figure1a", "figure2", "figure4"], tmp_path)
    before = sorted(tmp_path.rglob("*.*"))
    with pytest.raises(ConfigError, match=message):
        reproduce(**arguments, runs=tmp_path / "runs", figures=figures, console=Console(quiet=True))
    assert [path for path in sorted(tmp_path.rglob("*.*")) if path.suffix != ".pyc"] == before
