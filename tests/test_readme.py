"""The examples of the README and of the guides run as printed, each page's in order, in an empty
folder.
"""

import re
import shlex
import shutil
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from ihlab.cli import main
from tests.figures.live import copy_code

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
OTHERS = [ROOT / "docs" / name for name in ("conformance.md", "proofs.md")]
PAGES = [README, *OTHERS, *sorted((ROOT / "docs" / "guides").glob("*.md"))]
NAMES = [page.stem for page in PAGES]

LINKED = re.compile(r"\]\((?!http)([^)#]+)[^)]*\)|`((?:ihlab|tasks|tests|docs|notebooks)/[\w/.]+)`")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)


def commands(page: Path) -> list[list[str]]:
    """The arguments of every `ihlab` command of a page."""
    lines = [
        line for block in blocks(page, "sh") for line in block.replace("\\\n", "").splitlines()
    ]
    split = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in split if words and words[0] == "ihlab"]


def agrees(printed: str, shown: str) -> bool:
    """Return whether two outputs have the same words, and the same numbers within .05."""
    numbers = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
    close = [[float(n) for n in numbers.findall(text)] for text in (printed, shown)]
    return numbers.sub("#", printed).split() == numbers.sub("#", shown).split() and close[
        0
    ] == pytest.approx(close[1], abs=0.05)


def pages_with(of) -> list:
    return [pytest.param(page, id=page.stem) for page in PAGES if of(page)]


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    "page", pages_with(lambda page: blocks(page, "python") and page.stem != "sweep")
)
def test_python_examples(page, capsys, monkeypatch):
    names: dict[str, object] = {}
    wandb, board = MagicMock(), MagicMock()
    if page.stem == "train":
        monkeypatch.setitem(sys.modules, "wandb", wandb)
        if find_spec("tensorboard") is None:
            monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
    if page == README:
        assert agrees(capsys.readouterr().out, "".join(blocks(page, "text")[1:4:2]))
    if page.stem == "suite":
        assert agrees(capsys.readouterr().out, "".join(blocks(page, "text")))
    if page.stem == "proofs":  # numbers of trained models differ between machines
        assert capsys.readouterr().out.startswith(blocks(page, "text")[0])
    if page.stem == "analyse":  # without the key shift: beside a model whose alpha2 is 0
        names["model"].blocks[0].attn.key_shift.weight.data[:, 1] = 0  # type: ignore[attr-defined]
        assert names["no_key_shift"].equal(names["model"](names["tokens"]))  # type: ignore[attr-defined, operator]
    if page.stem == "train":
        assert names["accuracies"] == names["again"].metrics["accuracy"].tolist()  # type: ignore[attr-defined]
        steps = names["again"].metrics["step"].tolist()  # type: ignore[attr-defined]
        logged = wandb.init.return_value.__enter__.return_value.log.call_args_list
        assert [call.kwargs["step"] for call in logged] == steps
        added = board.SummaryWriter.return_value.__enter__.return_value.add_scalar.call_args_list
        assert (
            find_spec("tensorboard")
            or [call.args[2] for call in added if call.args[0] == "accuracy"] == steps
        )


TRAINED: dict[str, Path] = {}
"""The runs that a command has left, for the other pages that print it: it finds them finished."""


def test_the_verdict_of_conformance():
    from ihlab.hf.conformance import run
    from ihlab.hf.conformance.families import tiny
    from ihlab.hf.conformance.suite import verdict

    assert "--family mamba --checks chunks" in blocks(README, "sh")[-1]
    results = run(partial(tiny, "mamba"), ["chunks"])
    assert verdict(results) == blocks(README, "text")[-1].strip()


@pytest.mark.parametrize("page", pages_with(commands))
def test_shell_examples(page, empty, capsys):
    copy_code(["figure1b"], empty / "figures")  # as in a clone
    for block in blocks(page, "toml"):
        (empty / block.split(":")[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    for command in commands(page):
        if shlex.join(command) in TRAINED:
            shutil.copytree(TRAINED[shlex.join(command)], "runs", dirs_exist_ok=True)
        main(command)
        if command[0] in ("train", "reproduce"):
            TRAINED.setdefault(shlex.join(command), empty / "runs")
    printed = capsys.readouterr().out
    expected = {
        "README": ["Picture, numbers and intervals: figures/figure1/figure1b/README.md"],
        "train": ["Runs in runs", "hops"],
        "sweep": ["rates.csv: 4 runs"],
        "analyse": ["Shifts of kv-shift-1-layer"],
        "reproduce": ["Picture, numbers and intervals:"],
        "suite": ["induction-vanilla-2 ", "folder"],
    }
    assert all(words in printed for words in expected[page.stem])
    if page == README:
        trained, _, proved, *_ = blocks(page, "text")
        assert agrees(printed.splitlines()[0], trained)
        assert proved.splitlines()[0] in printed
    if page.stem == "sweep":  # its Python reads what its commands have made
        names: dict[str, object] = {}
        for block in blocks(page, "python"):
            exec(compile(block, page.name, "exec"), names)
        assert capsys.readouterr().out.endswith("of vanilla's steps, [0.18, 0.18] at 0%\n")
        assert (empty / "rates.png").exists()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_file_it_names_exists(page):
    for link, name in LINKED.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / link if link else ROOT / name).exists(), link or name


def test_it_names_the_make_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?:^|`)make (\w+)", README.read_text(encoding="utf-8"), flags=re.M)
    assert {"reproduce", "test", "lab"} <= set(targets)
    assert all(f"\n{target}:" in makefile for target in targets)
