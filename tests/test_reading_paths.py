"""The reading paths of the layout guide: each job runs the functions of its path, in the order of
the page.
"""

import re
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab import ModelConfig, RunConfig, Transformer, train
from ihlab.attribution import compare, problem
from ihlab.interp import locate_induction_heads
from ihlab.plots.views import dots
from ihlab.study.ask import Ask, mean_over_seeds
from ihlab.study.ledger import Folder
from ihlab.study.study import Study, cells
from tasks import InductionTask

ROOT = Path(__file__).parents[1]
TASK = InductionTask(vocab_size=32, length=16)
MODEL = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=32, n_ctx=16, attention="kv_shift")
STEPS = re.compile(r"^\| `(\S+\.py)` \| `(\S+)` \|", re.MULTILINE)
SECTIONS = re.findall(
    r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", (ROOT / "docs/guides/layout.md").read_text(), re.M | re.S
)
PATHS = {title: STEPS.findall(section) for title, section in SECTIONS}


def attend_and_differentiate(folder: Path) -> None:
    x = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(0))
    Transformer(MODEL).blocks[0].attn(x).square().sum().backward()


def train_two_steps(folder: Path) -> None:
    config = RunConfig(task=TASK, model=MODEL, steps=2, batch_size=4, eval_rows=4, warmup=1)
    train(config, folder, "cpu", report=lambda step, row: None)


def score_heads(folder: Path) -> None:
    locate_induction_heads(
        Transformer(MODEL), batch=TASK.batch(4, np.random.default_rng(0)), rows=2
    )


def publish(folder: Path) -> None:
    study = Study(
        name="one-question",
        title="Does it learn?",
        declared="2026-01-01",
        cells=cells(attention=["kv_shift"]),
        config=lambda cell: None,
        measure=lambda run: {},
        asks=[
            Ask(
                "learns",
                "It learns.",
                mean_over_seeds("accuracy", {"attention": "kv_shift"}),
                above=0.5,
            )
        ],
        summary_columns=["accuracy"],
        view=dots("attention", "accuracy", xlabel="accuracy"),
    )
    for accuracy in (
        [0.7, 0.8, 0.9],
        [0.1, 0.2, 0.3],
    ):  # the second table replaces the first one's verdict
        data = pd.DataFrame({"attention": "kv_shift", "seed": range(3), "accuracy": accuracy})
        Folder(folder / study.name).publish(study, data)


def score_a_method(folder: Path) -> None:
    compare(problem(Transformer(MODEL), TASK, size=4), ["attribution-patching"])


JOBS = (attend_and_differentiate, train_two_steps, score_heads, publish, score_a_method)


def functions_run(job, folder: Path) -> list[tuple[str, str]]:
    """Return the file and name of every Python function of the repository, in the order of their
    first calls.
    """
    calls: dict[tuple[str, str], None] = {}

    def note(frame, event, argument):
        if event == "call":
            calls.setdefault((frame.f_code.co_filename, frame.f_code.co_qualname))

    threading.setprofile(note)  # batches are drawn in a thread
    sys.setprofile(note)
    try:
        job(folder)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [(name.removeprefix(f"{ROOT}/"), function) for name, function in calls]


@pytest.mark.parametrize(("title", "job"), list(zip(PATHS, JOBS, strict=True)), ids=list(PATHS))
def test_the_functions_of_a_path_run_in_its_order(title, job, tmp_path):
    TASK.batch(1, np.random.default_rng(0))  # compiles its kernel outside the trace
    assert len({file for file, _ in PATHS[title]}) <= 6
    assert (
        [call for call in functions_run(job, tmp_path) if call in PATHS[title]]
        == PATHS[title]
        != []
    )
