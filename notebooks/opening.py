"""Write the address of the repository into the notebooks: `python notebooks/opening.py`.

The address is `Repository` of `[project.urls]` in `pyproject.toml`; none is known yet. A notebook has it in two cells,
found by their tags: "colab", a link that opens the notebook in Colab, and "install", which installs what is missing.
"""

import tomllib
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parent
GITHUB = "https://github.com/"
"""Colab opens notebooks of GitHub."""

UNKNOWN = "*Open in Colab*: the repository has no public address yet, so there is no link."

INSTALL = """\
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

repository = "{address}"  # {comment}
if repository and not Path("varied.py").exists():  # the notebook was opened alone, as on Colab
    if not Path("lab").exists():
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", repository, "lab"], check=True)
    os.chdir("lab/notebooks")
if find_spec("ihlab") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", ".."], check=True)"""
"""Installs ihlab from the checkout where it is missing, as on Colab or in a new environment."""


def address() -> str:
    """Return the address of the repository, or "" if none is known."""
    project = tomllib.loads((NOTEBOOKS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")


def sources(name: str, repository: str) -> dict[str, str]:
    """Return the source of each tagged cell of a notebook. Raises `ValueError` for an address outside GitHub."""
    if not repository:
        comment = "address of ihlab's repository, which Colab needs: none is known yet"
        return {"colab": UNKNOWN, "install": INSTALL.format(address="", comment=comment)}
    if not repository.startswith(GITHUB):
        raise ValueError(
            f"Repository is {repository}, but must begin with {GITHUB}: Colab opens no other notebooks."
        )
    place = f"{repository.removeprefix(GITHUB)}/blob/main/notebooks/{name}"
    return {
        "colab": f"[Open in Colab](https://colab.research.google.com/github/{place})",
        "install": INSTALL.format(address=repository, comment="address of ihlab's repository"),
    }


def write_address(path: Path, repository: str) -> None:
    """Write the cells that have the address, where a notebook has such cells."""
    notebook = nbformat.read(path, as_version=4)
    written = sources(path.name, repository)
    tagged = [
        (cell, tag)
        for cell in notebook.cells
        for tag in cell.metadata.get("tags", [])
        if tag in written
    ]
    for cell, tag in tagged:
        cell.source = written[tag]
    if tagged:
        nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        write_address(path, address())
