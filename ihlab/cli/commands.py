"""Commands that make runs and figures, and list tasks and runs: `reproduce`, `train`, `sample`, `runs`."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from ihlab.cli.defaults import run_options, to_run
from ihlab.cli.named import registered_experiment
from ihlab.cli.paths import TABLES, check_output, write_table
from ihlab.cli.terminal import console, print_table, text
from ihlab.storage.files import require_writable
from ihlab.training.find_runs import listable
from tasks import TASKS, Batch, IGSMTask
from tasks.config import choose, require

if TYPE_CHECKING:  # --help needs no torch
    from ihlab.training.run import Run

MOST_PRINTED = 10_000_000
"""Maximum number of positions that `ihlab sample` prints. More take minutes. Each takes a hundred bytes of memory."""

LISTED = [
    "run",
    "status",
    "task",
    "attention",
    "seed",
    "step",
    "accuracy",
    "guess",
    "seconds",
    "slices",
]
"""The printed columns of runs."""

SMALL: dict[str, Any] = {"vocab_size": 64, "length": 32}
SAMPLED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("induction", "multihop", "ngram", "mqar", "trigger"), SMALL),
    "igsm": {"difficulty": "toy", "ops": "<=4", "length": 200},
}
"""Default fields of `ihlab sample`, which make short sequences. Tasks not named here have their own defaults."""


def reproduce(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    scale: str = "laptop",
    jobs: int | None = None,
    device: str = "auto",
    runs: Path = Path("runs"),
    figures: Path = Path("figures"),
    from_data: bool = False,
    interactive: bool = False,
) -> None:
    """Train the runs for the paper's figures, draw the figures, and print which claims hold.

    Args:
        names: Figures to make, such as figure1a, which figures/*/study.py declares, or your own: a study file
            such as my_study.py, or module:name; if none is named, DEFAULT. Others take longer: OTHERS.
        scale: smoke (seconds) or laptop (minutes); Figures 1a, 1b, 8 and 9 also have gpu (tens of minutes) and paper
            (the paper's own sizes).
        jobs: Number of runs trained at a time; by default one per core, and 1 on a GPU.
        device: A torch device, or auto: a GPU if there is one.
        runs: Folder of the runs. Finished runs are reused, interrupted runs are resumed.
        figures: Folder of the studies, in which pictures, tables and claims are written.
        from_data: Redraw figures and re-evaluate claims from the stored tables, without training.
        interactive: Also write each figure as a page to explore, <name>.html, of up to 1 MB. Beside it stands the
            library that it needs, plotly.min.js, of 4.8 MB.
    """
    from ihlab.study.reproduce import reproduce as run_experiments

    chosen = [registered_experiment(name) if ":" in name else name for name in names]
    run_experiments(chosen, scale, jobs, device, runs, figures, from_data, interactive=interactive)


_HELP = str(reproduce.__doc__)


def name_figures() -> None:
    """Name every figure of the folder `figures` in the help of `ihlab reproduce`."""
    from ihlab.study.find import declared

    figures = declared(Path("figures"))
    by_default = {name for name, figure in figures.items() if figure.by_default}
    text = _HELP
    for word, chosen in {"DEFAULT": by_default, "OTHERS": figures.keys() - by_default}.items():
        names = ", ".join(name for name in figures if name in chosen)
        text = text.replace(word, names or "those of a clone of the repository")
    reproduce.__doc__ = text


def trainer(kind: str, args: Sequence[str]) -> Callable[..., None]:
    """Return the command `ihlab train <kind>`, with the fields of that task and of its model as options."""
    options_type = run_options(kind, args)

    def train(
        options: Annotated[options_type, tyro.conf.arg(name="")],  # type: ignore[valid-type]
        root: Path = Path("runs"),
        device: str = "auto",
        members: int | None = None,
    ) -> None:
        from ihlab.training.train import train as train_run

        run = to_run(options)
        require_writable("--root", root)
        trained: Any = train_run(run, root, device, members=members)
        if members is None:
            trained = [trained]
        for each in trained:
            print(text(_ending(each)))
        if members is None and not trained[0].diverged:
            print(text(_next(trained[0], root)))
        if any(each.diverged for each in trained):
            raise SystemExit(1)  # as for a single run

    others = ", ".join(sorted(TASKS.keys() - {kind}))
    train.__doc__ = f"""Train one model on a task: {kind} here. Other tasks: {others}, or module:Class of your own.

        Every option overrides one field and leaves the others at the defaults shown here. The default d_vocab and
        n_ctx are the task's vocab_size and length. The same command resumes an interrupted run.

        Args:
            options: The run.
            root: Where runs are kept.
            device: A torch device, or auto: a GPU if there is one.
            members: Train this many seeds, the run's own and those after it, stacked where that is faster.
        """
    return train


def _next(run: "Run", root: Path) -> str:
    where, task = run.folder.name, type(run.config.task)
    if root != Path("runs"):
        where = str(run.folder)
    where = shlex.quote(where)
    if task.__module__.partition(".")[0] != "tasks":
        where += f" --task {task.__module__}:{task.__qualname__}"
    return f"Its heads: ihlab heads {where}    and on a page: ihlab view {where}"


def _ending(run: "Run") -> str:
    if run.diverged:
        return f"{run.folder}: the loss is not finite at step {run.diverged['step']}; the last checkpoint is kept."
    from ihlab.training.listing import slices

    last, guess = run.metrics.iloc[-1], (run.done or {}).get("guess")
    parts = [f"first answer of a sequence {last['accuracy_first']:.4f}", slices(dict(last))]
    if guess is not None:
        parts.append(f"a guess {guess:.4f}")
    return (
        f"{run.folder}: step {last['step']:.0f}, loss {last['eval_loss']:.4f}, accuracy {last['accuracy']:.4f} "
        f"({'; '.join(filter(None, parts))})"
    )


def train(
    kind: Annotated[str, tyro.conf.Positional] = "induction",
    /,
    options: Annotated[str, tyro.conf.Positional] = "",
) -> None:
    """Train one model on a task, by default induction. Every field of the run can be set.

    Args:
        kind: The task, such as multihop, or module:Class of your own.
        options: The fields of the run; 'ihlab train multihop --help' lists them.
    """
    choose("task", kind, TASKS)  # reached only with a kind that does not exist


def sample(
    kind: Annotated[str, tyro.conf.Positional],
    /,
    options: Annotated[str, tyro.conf.Positional] = "",
) -> None:
    """Print sequences of a task in readable form, with the roles of tokens and the scored positions marked.

    Args:
        kind: The task, such as induction, or module:Class of your own.
        options: The task's fields, and --rows and --seed; 'ihlab sample induction --help' lists them.
    """
    choose("task", kind, TASKS)  # reached only with a kind that does not exist


def sampler(kind: str, _: Sequence[str]) -> Callable[..., None]:
    """Return the command `ihlab sample <kind>`, with that task's own fields as options."""
    task_type = TASKS[kind]

    def sample_task(
        task: Annotated[task_type, tyro.conf.arg(name="")] = task_type(**SAMPLED.get(kind, {})),  # type: ignore[valid-type]  # noqa: B008
        rows: int = 1,
        seed: int = 0,
    ) -> None:
        """Print sequences of the task.

        Args:
            task: The task.
            rows: Number of sequences.
            seed: Seed of the random generator.
        """
        require(rows >= 1, f"rows is {rows}, but must be at least 1.")
        require(
            rows * task.length <= MOST_PRINTED,  # type: ignore[attr-defined]
            f"rows={rows} and length={task.length} are more than can be printed: "  # type: ignore[attr-defined]
            f"ask for at most {MOST_PRINTED} positions, with fewer sequences or a shorter length.",
        )
        require(seed >= 0, f"seed is {seed}, but must not be negative.")
        batch = task.batch(rows, np.random.default_rng(seed))  # type: ignore[attr-defined]
        for row in range(rows):
            print(task.show(batch, row))  # type: ignore[attr-defined]
            if isinstance(task, IGSMTask):
                _show_graphs(task, batch, row)

    return sample_task


def _show_graphs(task: IGSMTask, batch: Batch, row: int) -> None:
    """Print a problem's graphs as text."""
    from tasks.igsm.graphs import dependency_text, structure_text
    from tasks.igsm.problem import Problem

    problem = Problem.parse(task.decode(batch.inputs[row]), task.language.modulus, task.flat)
    print(f"\nStructure\n{structure_text(problem)}\n\nDependencies\n{dependency_text(problem)}\n")


def runs(
    root: Annotated[Path, tyro.conf.Positional] = Path("runs"), /, csv: Path | None = None
) -> None:
    """List stored runs, with their configuration, progress and accuracy, and why a damaged run cannot be opened.

    Args:
        root: Folder of the runs.
        csv: Write the whole table here, including damaged runs: the table of ihlab.runs in Python.
    """
    from ihlab.training.listing import DAMAGED
    from ihlab.training.listing import runs as stored_runs

    check_output("--csv", csv, TABLES)
    stored = stored_runs(listable(root))
    require(len(stored) > 0, f"There are no runs in {root}.")
    damaged = stored["status"] == DAMAGED
    names = stored["run"].map(lambda run: Path(run).name)
    if not damaged.all():
        print_table(stored.assign(run=names).loc[~damaged, LISTED], f"Runs in {root}")
    if csv is not None:
        write_table(stored, csv)
    for sentence in stored["problem"][damaged]:
        console().print(text(sentence), soft_wrap=True)
