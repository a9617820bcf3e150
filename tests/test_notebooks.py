"""Every notebook runs from top to bottom with other parameters than its own, and only stored tables
beside it.

One runs in a kernel of its own, as a reader's would. The others run in the process of the tests,
which spares each the seconds that a kernel takes to import everything.
"""

import ast
import builtins
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from plotly.basedatatypes import BaseFigure

from notebooks import opening, stills

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

CHANGED = {
    "00_from_scratch": {
        "vocabulary": 40,
        "context": 12,
        "width": 16,
        "steps": 40,
        "batch_size": 16,
        "seed": 3,
    },
    "00_quickstart": {
        "n_heads": 2,
        "vocab_size": 64,
        "length": 20,
        "d_model": 16,
        "steps": 20,
        "prompts": 8,
    },
    "01_figure_1": {"scale": "smoke", "seeds": 1, "vocab_size": 72, "steps": 0.5, "jobs": 1},
    "02_figure_2": {
        "scale": "smoke",
        "T": 9,
        "position": 3,
        "draws": 20,
        "lengths": (5, 8),
        "grid": 7,
    },
    "03_figure_8": {"scale": "smoke", "seeds": 1, "d_model": 24, "rows": 8, "jobs": 1},
    "04_figure_9": {"scale": "smoke", "seeds": 1, "rate": 2.0, "steps": 0.5, "jobs": 1},
    "05_locate_induction_heads": {"rows": 64, "seed": 2},
    "06_theorems": {"L": 9, "inputs": 4, "depths": (1, 2), "rows_of_hops": 5},
    "07_alpha_beta": {"scale": "smoke", "seeds": 1, "fork_seeds": 1, "fork_steps": 20, "jobs": 1},
    "08_igsm": {"n_problems": 8, "seed": 3},
    "09_text": {"scale": "smoke", "rows": 8, "context": 3, "shown": 20, "jobs": 1},
    "13_attribution": {"size": 8},
    "14_proofs": {"vocab_size": 6, "length": 6, "steps": 40, "questions": 1},
}
"""What is changed in each notebook: one parameter at least, the others so that it takes seconds.

The three studies run as they are, in `test_notebook_studies.py`.
"""


def read(path):
    import nbformat  # takes four seconds, which a worker that gets no test of a notebook does without

    return nbformat.read(path, as_version=4)


def copy_figures(folder):
    """Copy the figures of the checkout, without the scales that a user's `ihlab reproduce` writes
    there.
    """
    shutil.copytree(
        ROOT / "figures",
        folder,
        ignore=shutil.ignore_patterns("smoke", "gpu", "paper", "__pycache__"),
    )


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook, tag):
    """The cells with a tag."""
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def parameters(notebook):
    return ast.parse(tagged(notebook, "parameters")[0].source)


def changed(notebook, changes):
    """Change values in the notebook's parameter cell; it must have these names."""
    tree, left = parameters(notebook), dict(changes)
    for statement in tree.body:
        name = statement.targets[0].id
        if name in left:
            statement.value = ast.parse(repr(left.pop(name)), mode="eval").body
    assert not left, f"there is no parameter {', '.join(left)}"
    tagged(notebook, "parameters")[0].source = ast.unparse(tree)
    return notebook


def run(notebook, show):
    """Run the code cells in this process and return their names; `show` gets what a cell would
    display.
    """
    names = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook)):
        source = "\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            if value is not None and not source.rstrip().endswith(";"):
                show(value)
    return names


SAMPLED = ("00_quickstart", "14_proofs")
"""`make test` runs these notebooks, `make campaigns` the others."""


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if path.stem in SAMPLED else pytest.mark.rare)
        for path in NOTEBOOKS
        if path.stem in CHANGED
    ],
    ids=lambda path: path.stem,
)
def test_notebook_runs_with_other_parameters(path, tmp_path, monkeypatch):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    copy_figures(tmp_path / "figures")  # stored tables stand beside the notebooks, as in a clone
    for name in ("data", "varied.py"):
        (folder / name).symlink_to(ROOT / "notebooks" / name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as every test
    notebook = changed(read(path), CHANGED[path.stem])
    if path.stem == "00_quickstart":
        from nbclient import NotebookClient

        metadata = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources=metadata).execute()
        outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
        texts = [
            output.data["text/plain"] for output in outputs if output.output_type == "display_data"
        ]
        bars = [text.partition(",")[0].split() for text in texts if text.startswith("quickstart")]
        done = [
            ("quickstart", "20/20"),
            ("quickstart-vanilla", "20/20"),
            ("quickstart-narrow", "500/500"),
        ]
        assert [(bar[0], bar[-1]) for bar in bars] == done
    else:
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(ROOT / "notebooks")  # as in a kernel, for `varied`
        shown, rich = [], DisplayFormatter()

        def show(*values, raw=False):
            """Format values. A plotly figure that is formatted calls this again, with its raw data."""
            for value in values:
                formatted = value if raw else rich.format(value)[0]
                shown.extend([] if isinstance(value, BaseFigure) else [formatted])

        monkeypatch.setattr("IPython.display.display", show)
        monkeypatch.setattr(builtins, "display", show, raising=False)
        with mpl.rc_context({"backend": "agg"}), pd.option_context("display.max_colwidth", None):
            run(notebook, show)
            plt.close("all")
        assert shown
        assert all(shown)
    written = {place.name for place in tmp_path.iterdir()} | {
        place.name for place in folder.iterdir()
    }
    assert written <= {"data", "figures", "notebooks", "runs", "scratch", "varied.py"}


@EACH
def test_parameters_come_first_and_every_one_is_used(path):
    notebook = read(path)
    first, *later = [
        cell for cell in code_cells(notebook) if cell not in tagged(notebook, "install")
    ]
    assert first.metadata.get("tags") == ["parameters"]
    assert all(isinstance(statement, ast.Assign) for statement in parameters(notebook).body)
    names = {statement.targets[0].id for statement in parameters(notebook).body}
    lines = [
        line for cell in later for line in cell.source.splitlines() if not line.startswith("%")
    ]
    trees = list(ast.walk(ast.parse("\n".join(lines))))
    loaded = {
        node.id for node in trees if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    written = {
        node.id for node in trees if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert names <= loaded
    assert not names & written
    assert not any("set_num_threads" in line for line in lines)  # how many is the reader's choice


@EACH
def test_a_saved_notebook_is_executed_and_needs_no_network(path):
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 1_000_000  # plotly's library alone has 4.8 MB
    for local in ("site-packages", "/home/", str(ROOT)):  # a warning with somebody's path in it
        assert local not in text
    code = code_cells(read(path))
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for output in chain.from_iterable(cell.outputs for cell in code):
        assert output.output_type != "error"
        assert output.output_type != "stream" or len(output.text) < 10_000
        shown = output.get("data", {})
        page = "".join(shown.get("text/html", "")).replace("'", '"')
        assert "<progress" not in page
        assert '<script src="http' not in page
        # A forge shows a still in place of a picture to explore.
        assert stills.PLOTLY not in shown or stills.STILL in shown


# From scratch


def test_the_lab_from_scratch_has_at_most_150_lines_without_ihlab():
    """The cells run in the test above, which asserts that losses and logits are those of ihlab."""
    notebook = read(ROOT / "notebooks" / "00_from_scratch.ipynb")
    [install] = tagged(notebook, "install")
    cells = code_cells(notebook)
    ours = cells.index(install)  # the last section begins with it
    plain = "\n".join(cell.source for cell in cells[:ours])
    assert len(plain.splitlines()) <= 150
    imported = {
        node.module for node in ast.walk(ast.parse(plain)) if isinstance(node, ast.ImportFrom)
    }
    names = [node.names for node in ast.walk(ast.parse(plain)) if isinstance(node, ast.Import)]
    modules = imported | {alias.name for aliases in names for alias in aliases}
    assert {module.partition(".")[0] for module in modules} == {"matplotlib", "numpy", "torch"}
    after = "\n".join(cell.source for cell in cells[ours + 1 :])
    assert "assert difference < 1e-5" in after
    assert "assert difference < 1e-6" in after


# What a reader sees who has not installed anything

OPENED = (
    "00_from_scratch",
    "00_quickstart",
    "01_figure_1",
    "02_figure_2",
    "03_figure_8",
    "04_figure_9",
)
OPENED += ("05_locate_induction_heads", "13_attribution", "14_proofs")
ADDRESS = "https://github.com/lab/heads"


@pytest.mark.parametrize("stem", OPENED)
def test_a_notebook_has_the_address_of_pyproject(stem):
    path = ROOT / "notebooks" / f"{stem}.ipynb"
    for tag, source in opening.sources(path.name, opening.address()).items():
        assert [cell.source for cell in tagged(read(path), tag)] == [source]


def test_an_address_makes_a_link_and_code_that_installs(tmp_path, monkeypatch):
    path = tmp_path / "13_attribution.ipynb"
    path.write_bytes((ROOT / "notebooks" / path.name).read_bytes())
    opening.write_address(path, ADDRESS)
    [link] = tagged(read(path), "colab")
    url = "https://colab.research.google.com/github/lab/heads/blob/main/notebooks/13_attribution.ipynb"
    assert link.source == f"[Open in Colab]({url})"
    calls = []

    def call(command, check):
        calls.append(command)
        if command[0] == "git":
            (tmp_path / "lab" / "notebooks").mkdir(parents=True)

    monkeypatch.chdir(tmp_path)  # where the notebook is alone, as on Colab
    monkeypatch.setattr(subprocess, "run", call)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(tagged(read(path), "install")[0].source, {})
    assert Path.cwd() == tmp_path / "lab" / "notebooks"
    assert calls == [
        ["git", "clone", "--quiet", "--depth", "1", ADDRESS, "lab"],
        [sys.executable, "-m", "pip", "install", "--quiet", ".."],
    ]
