"""Graphs that `ihlab sample igsm` shows beside the text: a problem's structure and its dependencies."""

from pathlib import Path

from ihlab.cli.paths import PICTURES, check_output, write_picture
from tasks import Batch, IGSMTask
from tasks.config import require


def check_out(kind: str, out: Path | None) -> None:
    """Raise `ConfigError` for a picture of another task than iGSM, or of an unknown kind."""
    if out is None:
        return
    require(kind == "igsm", f"--out is {str(out)!r}, but only igsm has graphs to draw: leave it out for {kind}.")
    check_output("--out", out, PICTURES)


def show_graphs(task: IGSMTask, batch: Batch, row: int, out: Path | None = None) -> None:
    """Print a problem's graphs as text; with `out`, draw them as `<out>-<row>-structure` and `-dependencies`."""
    from tasks.igsm.graphs import dependency_text, structure_text
    from tasks.igsm.problem import Problem

    problem = Problem.parse(task.decode(batch.inputs[row]), task.language.modulus, task.flat)
    print(f"\nStructure\n{structure_text(problem)}\n\nDependencies\n{dependency_text(problem)}\n")
    if out is None:
        return
    from ihlab.plots.igsm import dependency_graph, structure_graph

    write_picture(dependency_graph(problem), out.with_stem(f"{out.stem}-{row}-dependencies"))
    if not task.flat:  # a flat problem has no structure graph
        write_picture(structure_graph(problem), out.with_stem(f"{out.stem}-{row}-structure"))
