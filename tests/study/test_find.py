"""Which file a name stands for, and that no other is imported."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from ihlab.model.registry import VARIANTS
from ihlab.study.find import chosen, declared, home, stored, study
from ihlab.study.reproduce import reproduce
from ihlab.sweep import imported, pool
from ihlab.sweep.imported import import_file
from tasks import TASKS, ConfigError

STUDY = """
from ihlab import ModelConfig, RunConfig
from ihlab.plots.views import dots
from ihlab.study.ask import Ask, mean_over_seeds
from ihlab.study.study import Study, cells
from .beside import TASK


def config(cell):
    model = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=16, n_ctx=8, attention=cell["attention"])
    return RunConfig(task=TASK, model=model, steps=2, batch_size=2, eval_rows=2, warmup=1)


def copied(run):
    return {"copied": run.metrics["accuracy"].iloc[-1]}


MINE = Study(
    name="mine",
    title="Mine",
    declared="2026-11-29",
    cells=cells(attention=("sharp", "vanilla")),
    config=config,
    measure=copied,
    asks=[Ask("copies", "It copies.", mean_over_seeds("copied", {"attention": "sharp"}), above=0.5)],
    summary_columns=["copied"],
    view=dots("attention", "copied", xlabel="accuracy"),
)
"""
BESIDE = """
from dataclasses import dataclass

from ihlab import InductionTask, register_attention, register_task
from ihlab.model.attention import Attention


class Sharp(Attention):
    pass


register_attention("sharp", Sharp)


@register_task
@dataclass(frozen=True)
class OwnTask(InductionTask):
    kind = "own"


TASK = OwnTask(vocab_size=16, length=8, min_token=0)
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    monkeypatch.setattr(imported, "IMPORTED", [])
    monkeypatch.setattr(pool, "IMPORTED", imported.IMPORTED)
    yield
    VARIANTS.pop("sharp", None)
    TASKS.pop("own", None)


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def family(figures: Path) -> Path:
    return write(figures / "family", study=STUDY, beside=BESIDE)


def test_names_are_read_without_importing_and_only_the_named_file_is_imported(tmp_path):
    family(tmp_path)
    write(
        tmp_path / "other",
        study='raise AssertionError("imported")\nOTHER = replace(A, name="other", by_default=True)',
    )
    found = declared(tmp_path)
    assert {name: figure.by_default for name, figure in found.items()} == {
        "mine": False,
        "other": True,
    }
    assert study("mine", tmp_path).title == "Mine"
    with pytest.raises(AssertionError, match="imported"):
        study("other", tmp_path)


def test_a_link_out_of_the_folder_declares_nothing(tmp_path):
    outside = family(tmp_path / "outside")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "family").symlink_to(outside)
    assert declared(tmp_path / "figures") == {}
    with pytest.raises(
        ConfigError,
        match=r"There is no .*figures/\*/study.py: the paper's studies come with a clone",
    ):
        study("mine", tmp_path / "figures")


def test_a_frozen_figure_says_where_it_can_be_run(tmp_path):
    family(tmp_path)
    write(tmp_path / "family" / "old").joinpath("claims.json").touch()
    with pytest.raises(
        ConfigError, match=r"old is frozen: .*old/README.md says how to run its study"
    ):
        study("old", tmp_path)


def test_a_file_that_is_no_python_is_named(tmp_path):
    write(tmp_path / "broken", study="A = (")
    with pytest.raises(ConfigError, match=r"broken/study.py is not Python"):
        declared(tmp_path)


def test_a_figure_stands_in_its_familys_folder_or_is_it(tmp_path):
    assert home("mine", tmp_path / "family" / "study.py") == tmp_path / "family" / "mine"
    assert home("family", tmp_path / "family" / "study.py") == tmp_path / "family"


@pytest.mark.slow
def test_anybodys_file_is_made_with_what_lies_beside_it_in_workers_too(tmp_path, spawned_workers):
    """Its attention and its task are its own: worker processes import the file again."""
    file = family(tmp_path / "elsewhere") / "study.py"
    [folder] = reproduce(
        [str(file)],
        "smoke",
        1,
        runs=tmp_path / "runs",
        figures=tmp_path / "figures",
        console=Console(quiet=True),
    )
    assert folder.home == tmp_path / "figures" / "mine"
    assert len(folder.data()) == 4
    assert stored(tmp_path / "figures") == {"mine": folder.home}
    assert (folder.home / "README.md").read_text(encoding="utf-8").startswith("# Mine\n")


def test_files_of_two_folders_do_not_mix(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / name, study="from .beside import NAME", beside=f"NAME = {name!r}")
    assert [import_file(tmp_path / name / "study.py").NAME for name in ("one", "two")] == [
        "one",
        "two",
    ]
    assert import_file(tmp_path / "one" / "study.py") is import_file(tmp_path / "one" / "study.py")


@pytest.mark.parametrize(
    ("text", "said"),
    [("A = 1", "has no study"), ("import sys; sys.exit(0)", "ends Python when it is imported")],
)
def test_a_file_without_a_study_says_so(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said):
        chosen(str(write(tmp_path, mine=text) / "mine.py"), tmp_path)
    assert "mine" not in sys.modules
