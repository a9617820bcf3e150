"""What a user waits for: commands, each as a process of its own, from start to end."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
from decode import HEADS, SMALL, SMOLLM2
from paired import figure, timed

TABLE = "What you wait for"
ROOT = Path(__file__).parents[1]
LOCATE = """
import sys
from transformers import AutoModelForCausalLM
from ihlab.interp import locate_induction_heads
locate_induction_heads(AutoModelForCausalLM.from_pretrained(sys.argv[1]))
"""


@dataclass(frozen=True)
class Wait:
    """A process: the most seconds it should take, what takes them, how often it is timed, and its
    exit code.
    """

    what: str
    command: list[str]
    goal: float
    why: str
    turns: int = 1
    code: int = 0


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the seconds of each; when quick, with a small model and few runs."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for wait in _waits(Path(folder), quick):
            run = timed(partial(_ends, wait, Path(folder), environment))
            seconds = [run() for _ in range(1 if quick else wait.turns)]
            rows.append(figure(TABLE, wait.what, seconds, "s", wait.goal, wait.why))
    return pd.DataFrame(rows)


def _ends(wait: Wait, folder: Path, environment: dict[str, str]) -> None:
    """Run the command. Raises `AssertionError` for another exit code."""
    done = subprocess.run(
        wait.command, check=False, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == wait.code, done.stderr


def _waits(folder: Path, quick: bool) -> list[Wait]:
    """Make in a folder what the commands read, and return them."""
    n_runs = 10 if quick else 1000
    python, ihlab = [sys.executable], [sys.executable, "-c", "from ihlab.cli import main; main()"]
    name = _runs(folder / "runs", n_runs)
    hf = _hugging_face(folder / "llama", SMALL if quick else SMOLLM2)
    shutil.copytree(ROOT / "figures/figure1", folder / "figures/figure1")
    return [
        Wait("`import ihlab`", [*python, "-c", "import ihlab"], 0.5, "the interpreter", 7),
        Wait(
            "`ihlab --help`",
            [*ihlab, "--help"],
            0.5,
            "importing NumPy, jaxtyping and tyro, which describe options",
            7,
        ),
        Wait(
            f"`ihlab runs`, {n_runs:,} runs",
            [*ihlab, "runs"],
            2.0,
            "importing torch; every config and evaluation is checked",
            3,
        ),
        Wait(
            "`ihlab view`, 20 checkpoints",
            [*ihlab, "view", name, "--out", "page.html"],
            4.0,
            "importing torch and TransformerLens, 2.5 s; the model at every checkpoint",
            3,
        ),
        Wait(
            "`ihlab train --name small`, 1,000 steps",
            [*ihlab, "train", "--name", "small"],
            20.0,
            "1,000 training steps of 11 ms; 55 evaluations, a sixth; imports",
        ),
        Wait(
            "`ihlab bench --quick`",
            [*ihlab, "bench", "--quick"],
            60.0,
            "exact effects of seven members; the first line comes after 3 s",
        ),
        Wait(
            "`ihlab attack vanilla-2-layers`",
            [*ihlab, "attack", "vanilla-2-layers"],
            90.0,
            "forward passes over changed sequences of 24 questions",
            code=1,  # it finds wrong answers
        ),
        Wait(
            "`ihlab reproduce figure1a --from-data`",
            [*ihlab, "reproduce", "figure1a", "--from-data"],
            10.0,
            "importing torch; intervals of every claim; drawing",
            3,
        ),
        Wait(
            "`locate_induction_heads`, the size of SmolLM2-135M",
            [*python, "-c", LOCATE, hf],
            30.0,
            "three forward passes of 16 sequences",
        ),
        Wait(
            "`ihlab heads --hf`, the size of SmolLM2-135M",
            [*ihlab, "heads", "--hf", hf],
            60.0,
            "forward passes, one of them for each ablated head",
        ),
    ]


def _runs(root: Path, n: int) -> str:
    """Train a run with 20 checkpoints and copy it to `n` folders. Return its name."""
    from ihlab.recipes.induction import figure1_run
    from ihlab.training.train import train

    config = figure1_run().replace(steps=40, compile=False, checkpoints=20, name="run-0")
    first = train(config, root, "cpu").folder
    for i in range(1, n):
        shutil.copytree(
            first, root / first.name.replace("run-0", f"run-{i}"), copy_function=os.link
        )
    return first.name


def _hugging_face(folder: Path, sizes: dict[str, int]) -> str:
    """Store a Llama with random weights, and return its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**sizes, **HEADS, tie_word_embeddings=True)).save_pretrained(
        folder
    )
    return str(folder)
