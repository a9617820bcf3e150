"""Commands that open a run: `heads`, `shift`, `view`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from ihlab.cli.hugging_face import causal_lm, model_name, tokenizer_of
from ihlab.cli.named import registered_task
from ihlab.cli.paths import PAGES, PICTURES, TABLES, check_output, find_run, write_picture, write_table, writing
from ihlab.cli.terminal import console, text
from ihlab.measure.columns import COLUMNS
from tasks.config import ConfigError, require

HF_ROWS = 16
"""Every head is ablated twice, and a model of another library may have hundreds."""

PRINTED = [column for column in COLUMNS if column.printed]
RAW = "raw prefix_matching"

if TYPE_CHECKING:
    import pandas as pd

    from ihlab.training.run import Run

# Options of all three commands. tyro takes their help from here, and that of other options from the docstrings.
RunName = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="RUN", help="A run's folder, or its name, of which a prefix that is unique under --root is enough."
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
    tyro.conf.arg(metavar="MODULE:CLASS", help="The class of the run's task, if it is your own task."),
]
Step = Annotated[int | None, tyro.conf.arg(help="The checkpoint to open; by default the last.")]


def heads(
    run: OptionalRunName = None,
    /,
    root: Root = Path("runs"),
    step: Step = None,
    task: TaskName = None,
    hf: str | None = None,
    length: int | None = None,
    rows: int | None = None,
    seed: int = 0,
    csv: Path | None = None,
    out: Path | None = None,
) -> None:
    """Score every head of a run, or of a Hugging Face model: induction and other scores, and the loss with it ablated.

    Args:
        hf: Instead of a run, a Hugging Face causal LM: a folder, or a name that transformers finds by itself.
        length: Positions of the repeated random tokens; by default the model's context, and 128 at most with --hf.
        rows: Number of sequences on which heads are ablated: held-out ones of the run's task, by default as many as
            training evaluates on; with --hf random tokens read twice, by default 16.
        seed: Seed of the repeated random tokens on which heads are scored.
        csv: Write all scores here, of raw and of effective patterns.
        out: Draw every head's pattern here (.png or .svg).
    """
    require(seed >= 0, f"seed is {seed}, but must not be negative.")
    require(rows is None or rows >= 2, f"rows is {rows}, but must be at least 2: the loss is given with its error.")
    require(hf is None or step is None, "--step is of a run's checkpoints, and the model of --hf has none.")
    found = _found(run, hf, root, task)
    check_output("--csv", csv, TABLES, found)
    check_output("--out", out, PICTURES, found)
    if found is not None:
        step = found.require_checkpoint(step)
        found.require_task()

    from ihlab.interp.heads import mean_patterns
    from ihlab.interp.locate import scored_heads
    from ihlab.interp.sources import opened_model
    from ihlab.measure.batches import EVAL_SEED, draw
    from ihlab.measure.probe import STRIPE_REPEATS, repeated_batch

    if found is not None:
        model, name = opened_model(found.model(step)), f"{found.folder.name} at step {step}"
        batch = draw(found.config.task, EVAL_SEED, "eval", 0, rows or found.config.eval_rows)
        kind = "held-out sequences"
    else:
        model, name = opened_model(causal_lm(str(hf))), model_name(str(hf))
        twice = model.probe_rows(STRIPE_REPEATS, rows or HF_ROWS, length, None, seed + 1)
        batch, kind = repeated_batch(twice, STRIPE_REPEATS), "sequences of random tokens read twice"
    scores = scored_heads(model, batch, seed=seed, length=length)
    terminal = console()
    terminal.print(_heads_table(scores, f"Heads of {text(name)}"))
    if not scores["induction"].any():
        terminal.print("There are no induction heads" + (f" at step {step}." if hf is None else "."))
    terminal.print("", _heads_legend(), f"Heads are ablated on {len(batch.inputs)} {kind}.", sep="\n")
    if csv is not None:
        write_table(scores, csv)
    if out is not None:
        from ihlab.plots.heads import head_patterns

        patterns = mean_patterns(model, length=length, seed=seed)
        write_picture(head_patterns(patterns, scores, name.replace(" at step", ", step")), out)


def _found(run: str | None, hf: str | None, root: Path, task: str | None) -> "Run | None":
    """Return the run that the user named, and None for a Hugging Face model. Import and register the task first.

    Raises `ConfigError` unless exactly one of the two is given.
    """
    require(
        (run is None) != (hf is None),
        "Give a run, or a model of transformers with --hf." if run is None else "A run and --hf are given: choose one.",
    )
    if task is not None:  # a file's own word is never imported
        registered_task(task)
    return None if run is None else find_run(run, root)


def _heads_table(scores: "pd.DataFrame", title: str) -> Table:
    """Return a table of scores, one row per head, likeliest induction head first."""
    # Narrow enough for a terminal of 80 columns.
    names = [name.replace("eigenvalue", "eigen- value") for name in (RAW, *(at.name for at in PRINTED))]
    heads = [re.sub("[ _]", "\n", name) for name in names]
    table = Table("head", "induc-\ntion", *map(_number, heads), title=title, title_justify="left", box=SIMPLE_HEAD,
                  show_edge=False, pad_edge=False, padding=0)  # fmt: skip
    raw = {(head.layer, head.head): head for head in scores[scores["pattern"] == "raw"].itertuples()}
    for head in scores[scores["pattern"] == "effective"].itertuples():
        numbers = [
            f"{getattr(head, column.name):z.3f}" + (f"±{getattr(head, column.error):.3f}" if column.error else "")
            for column in PRINTED
        ]
        table.add_row(
            f"{head.layer}.{head.head}",
            "yes" if head.induction else "",
            f"{raw[head.layer, head.head].prefix_matching:z.3f}",
            *numbers,
            style="bold" if head.induction else None,
        )
    return table


def _heads_legend() -> Table:
    """Return what the columns of `_heads_table` say."""
    legend = Table.grid(padding=(0, 2, 0, 0))
    legend.add_row(RAW, "prefix_matching of the raw pattern; the rest: of the effective")
    for column in PRINTED:
        legend.add_row(column.name, column.meaning + (" ± error" if column.error else ""))
    return legend


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
        out: Draw alpha and beta over all of training here (.png or .svg).
    """
    from ihlab.interp.shifts import quadrant_table, shift_report

    found = find_run(run, root)
    check_output("--csv", csv, TABLES, found)
    check_output("--out", out, PICTURES, found)
    step = found.require_checkpoint(step)
    model = found.model(step)
    report = shift_report(model)
    terminal = console()
    terminal.print(_shift_table(report, f"Shifts of {text(found.folder.name)} at step {step}"))
    if model.cfg.shift_window == 2 and model.cfg.learns_both:
        terminal.print(_quadrants(quadrant_table([model])))
    if csv is not None:
        write_table(report, csv)
    if out is not None:
        from ihlab.plots.heads import shift_training

        write_picture(shift_training(found.metrics, found.folder.name), out)


def _shift_table(report: "pd.DataFrame", title: str) -> Table:
    """Return a table of alpha and beta, one row per key/value head; of windows of two also alpha2's share."""
    stored = [name for name in report.columns if name.removeprefix("alpha").removeprefix("beta").isdigit()]
    shares = [name for name in ("alpha_share", "beta_share") if name in report]
    names = [*stored, *(f"{name.removesuffix('_share')}2 share" for name in shares)]
    table = Table("kv head", *map(_number, names), title=title, title_justify="left")
    for _, head in report.iterrows():
        table.add_row(f"{head['layer']}.{head['head']}", *(f"{head[name]:z.3f}" for name in (*stored, *shares)))
    return table


def _quadrants(counts: "pd.DataFrame") -> Table:
    numbers = map(_number, ("raw", "gauge-free", "raw if signs flipped"))
    title = "Heads by their larger key and value weight (Table 5)"
    table = Table("key", "value", *numbers, title=title, title_justify="left")
    for row in counts.itertuples(index=False):
        table.add_row(*map(str, row))
    return table


def _number(name: str) -> Column:
    return Column(name, justify="right", no_wrap=True)


def view(
    run: OptionalRunName = None,
    /,
    root: Root = Path("runs"),
    task: TaskName = None,
    hf: str | None = None,
    out: Path | None = None,
    tokens: str | None = None,
    row: str | None = None,
    rows: int = 4,
    checkpoints: int = 20,
) -> None:
    """Write a page of attention, a run's through training or a Hugging Face model's: one HTML file that opens offline.

    Args:
        hf: Instead of a run, a Hugging Face causal LM: a folder, or a name that transformers finds by itself.
        out: The page to write; by default the name of the run's folder, or of the model, and .html, in this folder.
        tokens: The sequence to read: ids or the task's words, separated by spaces, as "3 1 4 3"; with --hf a text, if
            the model has a tokenizer. By default the task's held-out sequences, or random tokens with --hf.
        row: The sequence to read as ids separated by commas, as 3,1,4,1,5.
        rows: Number of held-out sequences on the page.
        checkpoints: Maximum number of the run's checkpoints on the page.
    """
    from ihlab.viewer import write_view

    require(tokens is None or row is None, "--tokens and --row are both given, but the page reads one of them.")
    found = _found(run, hf, root, task)
    name = model_name(str(hf)) if found is None else found.folder.name
    page = out or Path(f"{name}.html")
    check_output("--out", page, PAGES, found)
    if found is not None:
        read = tokens if row is None else _ids(row, found.config.model.d_vocab)
        with writing(page):
            write_view(found, page, read, checkpoints=checkpoints, rows=rows)
        return
    from ihlab.interp.sources import opened_model
    from ihlab.measure.probe import STRIPE_REPEATS

    model, tokenizer = causal_lm(str(hf)), tokenizer_of(str(hf))
    opened = opened_model(model)
    given: str | list[int] | None = tokens if row is None else _ids(row, opened.d_vocab)
    repeated = opened.probe_rows(STRIPE_REPEATS, rows, None, None, 0) if given is None else None
    if tokens is not None and tokenizer is not None:
        given = tokenizer.encode(tokens)
    with writing(page):
        write_view(model, page, repeated if given is None else given, tokenizer, title=name)


def _ids(row: str, d_vocab: int) -> list[int]:
    """Parse comma-separated token ids. Raises `ConfigError` for anything else, and for ids out of range."""
    try:
        ids = [int(token) for token in row.split(",")]
    except ValueError:
        raise ConfigError(f"--row is {row!r}, but must be token ids with commas between, such as 3,1,4.") from None
    wrong = [token for token in ids if not 0 <= token < d_vocab]
    require(not wrong, f"--row holds {wrong and wrong[0]}, but the model's ids are 0 to {d_vocab - 1}.")
    return ids
