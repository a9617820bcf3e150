"""Commands that open a run: `shift` and `view`, and the options that other commands share with them."""

import os
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ihlab.cli.named import registered_task
from ihlab.cli.paths import (
    PAGES,
    TABLES,
    check_output,
    find_run,
    write_interactive,
    write_table,
    writing,
)
from ihlab.cli.terminal import print_table
from ihlab.storage.model_folder import causal_lm, of_model, tokenizer_of
from tasks.config import name_path, require

if TYPE_CHECKING:
    from ihlab.training.run import Run

# Options that several commands share. Their help texts are here; those of other options are in the docstrings.
RunName = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="RUN",
        help="A run's folder or its name. A prefix of the name that is unique under --root is enough.",
    ),
]
OptionalRunName = Annotated[
    str | None,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN", help="A run, as for the other commands; leave it out with --hf."),
]
Root = Annotated[Path, tyro.conf.arg(help="Where runs are kept.")]
TaskName = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="MODULE:CLASS", help="The class of the run's task, if it is your own task."
    ),
]
Corpus = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="FOLDER",
        help="The folder of texts that the run's config.json names: it is read only if you name it here as well.",
    ),
]
Step = Annotated[int | None, tyro.conf.arg(help="The checkpoint to open; by default the last.")]


def found_run(
    run: str | None,
    hf: str | None,
    root: Path,
    task: str | None,
    corpus: str | None = None,
    step: int | None = None,
) -> "Run | None":
    """Return the run that the user named, or None for a Hugging Face model. Import and register the task first.

    `corpus`: a folder of texts that the run's config may name.

    Raises `ConfigError` unless exactly one of `run` and `hf` is given, and for a step with `hf`.
    """
    require(run is not None or hf is not None, "Give a run, or a model of transformers with --hf.")
    require(run is None or hf is None, "A run and --hf are given: choose one.")
    require(
        hf is None or step is None,
        "--step names a checkpoint of a run, but the model of --hf has no checkpoints.",
    )
    if task is not None:  # names read from a file are never imported
        registered_task(task)
    if corpus is not None:
        name_path(corpus)
    if run is None:
        return None
    return find_run(run, root)


def reading(hf: str | None) -> AbstractContextManager[None]:
    """Return the context in which a Hugging Face model is read, shifted ones included: errors name it."""
    if hf is None:
        return nullcontext()
    import ihlab.hf  # noqa: F401  # transformers then knows shifted models

    return of_model(hf)


def model_name(name: str) -> str:
    """Return a Hugging Face model's name for titles and files: the last part of its name, or its folder's name."""
    place = Path(
        os.path.expanduser(name)
    )  # unlike Path's own, leaves the name of an unknown user as it is
    if place.is_dir():
        place = place.resolve()
    return place.name


def shift(
    run: RunName,
    /,
    root: Root = Path("runs"),
    step: Step = None,
    csv: Path | None = None,
    out: Path | None = None,
) -> None:
    """Show alpha and beta of a run with KV shifting attention, as stored and with the gauge fixed.

    Args:
        csv: Write the report of every key/value head here.
        out: Draw alpha and beta over all of training here, as a page to explore (.html, 4.8 MB).
    """
    from ihlab.interp.shifts import quadrant_table, shift_report

    opened = find_run(run, root)
    check_output("--csv", csv, TABLES, opened)
    check_output("--out", out, PAGES, opened)
    step = opened.require_checkpoint(step)
    model = opened.model(step)
    report = shift_report(model)
    weights = report.filter(regex=r"^(layer|head|(alpha|beta)(\d+|_share))$")
    print_table(weights, f"Shifts of {opened.folder.name} at step {step}")
    if model.cfg.shift_window == 2 and model.cfg.learns_both:
        print_table(quadrant_table([model]), "Heads by their larger key and value weight (Table 5)")
    if csv is not None:
        write_table(report, csv)
    if out is not None:
        from ihlab.plots.interactive import shift_weights

        write_interactive(shift_weights(opened.metrics, opened.folder.name), out)


def view(
    run: OptionalRunName = None,
    /,
    root: Root = Path("runs"),
    task: TaskName = None,
    corpus: Corpus = None,
    hf: str | None = None,
    out: Path | None = None,
    tokens: str | None = None,
    rows: int = 4,
    checkpoints: int = 20,
    megabytes: float | None = None,
) -> None:
    """Write an HTML page to open offline: every head's attention, of a run during training or a Hugging Face model.

    Args:
        hf: Instead of a run, a Hugging Face causal LM: a folder, or a name that transformers finds by itself.
        out: The page to write; by default the name of the run's folder, or of the model, and .html, in this folder.
        tokens: Input of the model: ids or the task's words, separated by spaces, such as "3 1 4 3"; with --hf also a
            text, if the model has a tokenizer. By default the task's held-out sequences, or random tokens with --hf.
        rows: Number of held-out sequences on the page.
        checkpoints: Maximum number of the run's checkpoints on the page.
        megabytes: Maximum size of the page; by default 3, or 20 for a long sequence.
    """
    from ihlab.viewer import view as view_page

    require(
        megabytes is None or 0 < megabytes < 1e4,
        f"--megabytes is {megabytes}, but must be above 0 and below 10000.",
    )
    stored = found_run(run, hf, root, task, corpus)
    name = model_name(str(hf)) if stored is None else stored.folder.name
    page = out or Path(f"{name}.html")
    check_output("--out", page, PAGES, stored)
    if stored is not None:
        written = view_page(stored, tokens, checkpoints=checkpoints, rows=rows, megabytes=megabytes)
    else:
        from ihlab.interp.sources import opened_model
        from ihlab.measure.probe import STRIPE_REPEATS

        with reading(hf):
            model, tokenizer = causal_lm(str(hf)), tokenizer_of(str(hf))
            read: Any = tokens
            if tokens is None:
                read = opened_model(model).probe_rows(STRIPE_REPEATS, rows, None, None, 0)
            elif tokenizer is not None and not re.fullmatch(r"[\d\s,]+", tokens):
                read = tokenizer.encode(tokens)
            written = view_page(model, read, tokenizer, title=name, megabytes=megabytes)
    with writing(page):
        written.write(page)
