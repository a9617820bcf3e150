"""Every notebook runs from top to bottom, at smoke scale and in a copy, so that nothing of the project's changes."""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("IHLAB_SCALE", "smoke")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as every test
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(path, folder)
    notebook = nbformat.read(folder / path.name, as_version=4)
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_committed_executed_and_without_errors(path):
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell.outputs if output.output_type in ("error",)]
    text = path.read_text(encoding="utf-8")
    assert "site-packages" not in text  # a warning with somebody's path in it
    assert "/home/" not in text
    assert str(Path(__file__).parents[1]) not in text
