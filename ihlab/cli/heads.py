"""The command `heads`: score every head of a run or of a Hugging Face model."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from ihlab.cli.inspect import (
    Corpus,
    OptionalRunName,
    Root,
    Step,
    TaskName,
    found_run,
    model_name,
    reading,
)
from ihlab.cli.paths import (
    PAGES,
    PICTURES,
    TABLES,
    check_output,
    write_interactive,
    write_picture,
    write_table,
)
from ihlab.cli.terminal import console, text
from ihlab.measure.columns import COLUMNS
from ihlab.storage.model_folder import causal_lm
from tasks.config import require

if TYPE_CHECKING:
    import pandas as pd

HF_ROWS, HF_PROBE_ROWS = 4, 8
"""Numbers of sequences on which heads of a Hugging Face model are ablated and scored: few, since it has many heads."""

LISTED = 32
"""The table lists this many heads (or all, if there are fewer), and every head that matches prefixes."""

PRINTED = [column for column in COLUMNS if column.printed]
RAW = "raw prefix_matching"


def heads(
    run: OptionalRunName = None,
    /,
    root: Root = Path("runs"),
    step: Step = None,
    task: TaskName = None,
    corpus: Corpus = None,
    hf: str | None = None,
    length: int | None = None,
    rows: int | None = None,
    seed: int = 0,
    probes: int = 1,
    bos: bool | None = None,
    csv: Path | None = None,
    out: Path | None = None,
) -> None:
    """Score every head of a run or a Hugging Face model: induction and other scores, and how ablation affects the loss.

    Args:
        hf: Instead of a run, a Hugging Face causal LM: a folder, or a name that transformers finds by itself.
        length: Positions of the repeated random tokens; by default the task's length, and 128 at most with --hf.
        rows: Number of sequences to ablate heads on. For a run, held-out sequences of its task, by default as many as
            training evaluates on. With --hf, random tokens repeated once, by default 4 sequences.
        seed: Seed of the repeated random tokens that heads are scored on.
        probes: Number of random probes; prefix_matching is the mean over them, with the standard deviation.
        bos: Begin the random tokens with the bos token, or not; by default as the task or the tokenizer does.
        csv: Write all scores of raw and effective patterns here.
        out: Draw a map of the heads and their scores here (.png or .svg), or one to explore (.html, 4.8 MB, with
            everything that it needs).
    """
    require(seed >= 0, f"seed is {seed}, but must not be negative.")
    require(
        rows is None or rows >= 2,
        f"rows is {rows}, but must be at least 2, to give the standard error of the loss.",
    )
    opened = found_run(run, hf, root, task, corpus, step)
    check_output("--csv", csv, TABLES, opened)
    check_output("--out", out, PICTURES + PAGES, opened)
    if opened is not None:
        step = opened.require_checkpoint(step)
        opened.require_task()

    from ihlab.interp.ablation import ablate_together
    from ihlab.interp.heads import FEW, scored_heads
    from ihlab.interp.repeated import RepeatedTokens
    from ihlab.interp.sources import opened_model
    from ihlab.measure.batches import EVAL_SEED, draw

    probe = {"seed": seed, "length": length, "probes": probes}
    with reading(hf):
        if opened is not None:
            model = opened_model(opened.model(step), prepend_bos=bos)
            name = f"{opened.folder.name} at step {step}"
            batch = draw(opened.config.task, EVAL_SEED, "eval", 0, rows or opened.config.eval_rows)
            kind = "held-out sequences"
        else:
            model, name = opened_model(causal_lm(str(hf)), prepend_bos=bos), model_name(str(hf))
            prompts = RepeatedTokens(model, length)
            batch = prompts.drawn(rows or HF_ROWS, seed + 1)
            kind = prompts.described(batch)
            probe["rows"] = HF_PROBE_ROWS
        scores = scored_heads(model, batch, **probe)
    terminal = console()
    terminal.print(_heads_table(scores, f"Heads of {text(name)}"))
    if not scores["induction"].any():
        terminal.print(
            "There are no induction heads" + (f" at step {step}." if hf is None else ".")
        )
    terminal.print(
        "", _heads_legend(), f"Heads are ablated on {len(batch.inputs)} {kind}.", sep="\n"
    )
    if opened is not None and (
        untrained := opened.config.model.untrained_positions(opened.config.task.length)
    ):
        terminal.print(
            f"Learned positions from {untrained[0]} on are untrained: only weight decay has moved them."
        )
    if model.n_layers * model.n_heads > FEW and scores["matches_prefix"].any():
        terminal.print(_together(ablate_together(model, batch, scores, seed=seed)))
    if csv is not None:
        write_table(scores, csv)
    if out is not None:
        _draw(scores, name.replace(" at step", ", step"), out)


def _draw(scores: "pd.DataFrame", title: str, out: Path) -> None:
    if out.suffix.lower() in PAGES:
        from ihlab.plots.interactive import head_map as map_to_explore

        write_interactive(map_to_explore(scores, title=title), out)
    else:
        from ihlab.plots.head_map import head_map

        write_picture(head_map(scores, title), out)


def _heads_table(scores: "pd.DataFrame", title: str) -> Table:
    """Return a table of scores, one row per head, most likely induction head first. Long tables are cut."""
    # Narrow enough for a terminal of 80 columns.
    names = [
        re.sub("[ _](?!rise)", "\n", name) for name in (RAW, *(column.name for column in PRINTED))
    ]
    columns = [Column(name, justify="right", no_wrap=True) for name in names]
    table = Table("head", "verdict", *columns, title=title, title_justify="left", box=SIMPLE_HEAD,
                  show_edge=False, pad_edge=False, padding=0)  # fmt: skip
    raw = {
        (head.layer, head.head): head for head in scores[scores["pattern"] == "raw"].itertuples()
    }
    effective = scores[scores["pattern"] == "effective"]
    for head in effective.head(max(LISTED, int(effective["matches_prefix"].sum()))).itertuples():
        numbers = [_number(head, column.name, column.error) for column in PRINTED]
        table.add_row(
            f"{head.layer}.{head.head}",
            str(head.verdict),
            f"{raw[head.layer, head.head].prefix_matching:z.3f}",
            *numbers,
            style="bold" if head.induction else None,
        )
    left = len(effective) - table.row_count
    if left:
        table.caption = f"{left} more heads match less; --csv writes all."
    return table


def _number(head: Any, name: str, error: str) -> str:
    """Format a score with its error. A score that was not measured is empty."""
    value = getattr(head, name)
    if math.isnan(value):
        return ""
    return f"{value:z.3f}" + (f"±{getattr(head, error):.3f}" if error else "")


def _heads_legend() -> Table:
    from ihlab.interp.heads import VERDICTS

    legend = Table.grid(padding=(0, 2, 0, 0))
    for verdict, meaning in VERDICTS.items():
        legend.add_row(f"verdict {verdict}" if verdict else "no verdict", meaning)
    legend.add_row(RAW, "prefix_matching of the raw pattern; the rest: of the effective")
    for column in PRINTED:
        legend.add_row(column.name, column.meaning + (" ± error" if column.error else ""))
    return legend


def _together(table: "pd.DataFrame") -> str:
    """Report the loss without the heads that match prefixes, and without equally many other heads."""
    these = table[table["heads"] == "these"].iloc[0]
    others = [
        f"without {of_kind['n'].max()} {named}: {of_kind['loss'].min():.2f} to {of_kind['loss'].max():.2f}"
        for kind, named in (
            ("random", "random others"),
            ("same layers", "others of the same layers"),
        )
        if len(of_kind := table[table["heads"] == kind])
    ]
    whole = these["loss"] - these["loss_rise"]
    return (
        f"Loss {whole:.2f}; without the {these['n']} heads that match prefixes, ablated together: {these['loss']:.2f}; "
        f"{'; '.join(others)}."
    )
