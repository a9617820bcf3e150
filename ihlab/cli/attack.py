"""The command `attack`: search for the sequences on which a run's answers are worst."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ihlab.cli.inspect import Root, RunName, Step, TaskName, found_run
from ihlab.cli.paths import PICTURES, TABLES, check_output, write_picture, write_table
from ihlab.cli.terminal import console, print_table, text
from tasks import IGNORE, Batch, Task
from tasks.batch import in_lines

if TYPE_CHECKING:
    import pandas as pd

    from ihlab.training.run import Run

LISTED = 5
"""The table lists this many questions, those with the smallest margins."""

COLUMNS = ["query", "answer", "mistaken_for", "sampled_margin", "margin", "in_task"]


def attack(
    run: RunName,
    /,
    root: Root = Path("runs"),
    step: Step = None,
    task: TaskName = None,
    support: Literal["task", "any"] = "task",
    questions: int = 24,
    length: int | None = None,
    restarts: int = 2,
    sweeps: int = 3,
    seed: int = 0,
    csv: Path | None = None,
    out: Path | None = None,
) -> None:
    """Search for sequences that a run answers wrongly, and say how it fails on them.

    Exits with 1 if a question is answered wrongly in some sequence, and with 0 if the search found none.

    Args:
        support: Sequences to search: all that the task can draw (task), or all in which the answer is right (any).
        questions: Number of questions. A question is a query with its answer.
        length: Number of tokens of a sequence; by default the most at which the task has questions.
        restarts: Number of searches for each question. The first starts from the sequence that the task drew,
            each other one from changes of the worst sequence so far. 16 restarts of 4 sweeps often find worse ones.
        sweeps: Number of times that a search visits every position, at most.
        seed: Seed of the questions and of the search.
        csv: Write the table of all questions here.
        out: Draw the worst sequences and the attention of every head here (.png or .svg).
    """
    opened: Run = found_run(run, None, root, task)  # type: ignore[assignment]  # None only with --hf
    check_output("--csv", csv, TABLES, opened)
    check_output("--out", out, PICTURES, opened)
    from ihlab.certify import attack as search

    opened.require_task()
    step = opened.require_checkpoint(step)
    asked = opened.config.task
    result = search(
        opened.model(step), asked, questions=questions, length=length, support=support, restarts=restarts,
        sweeps=sweeps, seed=seed,
    )  # fmt: skip
    terminal, name, worst = console(), f"{opened.folder.name}, step {step}", result.table.iloc[0]
    terminal.print(f"{text(name)}: {result.verdict}\n", soft_wrap=True)
    print_table(result.table[COLUMNS].head(LISTED))
    terminal.print(f"\n{_in_lines(asked, worst)}", soft_wrap=True)
    if csv is not None:
        write_table(result.table, csv)
    if out is not None:
        from ihlab.plots.worst import worst_sequences

        words = getattr(asked, "words", None)
        write_picture(worst_sequences(result.table, result.attention, name, words), out)
    if result.table["wrong"].any():
        raise SystemExit(1)


def _in_lines(task: Task, worst: "pd.Series") -> str:
    """Return a sequence as `ihlab sample` prints one, and how the model fails on it."""
    tokens = np.array([worst["worst"]])
    targets, roles = np.full(tokens.shape, IGNORE), [""] * tokens.size
    targets[0, -1], roles[-1] = worst["answer"], "Q"
    roles[worst["position"]], roles[worst["answer_position"]] = "K", "A"
    named = "Q is the query, A the answer and K the token that the answer follows."
    return in_lines(
        task, Batch(inputs=tokens, targets=targets), 0, f"{named}\n{worst['how']}", roles
    )
