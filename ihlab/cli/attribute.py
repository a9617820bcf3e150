"""The command `attribute`: the effects of heads, inputs or paths, exact and as attribution methods estimate them."""

from pathlib import Path
from typing import Any

from ihlab.cli.heads import LISTED
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
from ihlab.cli.paths import PAGES, TABLES, check_output, write_interactive, write_table
from ihlab.cli.terminal import console, print_table
from ihlab.storage.model_folder import causal_lm
from tasks.config import require

SHOWN = ("attribution-patching", "eap-ig")
"""Methods shown beside the exact effects by default. For heads of a run, "integrated-gradients" is shown, too."""

SCORES = [
    "method",
    "rank_correlation",
    "recall",
    "sign_errors",
    "cpr",
    "cmd",
    "forward",
    "backward",
    "relative",
]
"""The printed columns of methods' scores. `relative`: their time, if exact patching takes 1."""

HF_LENGTH = 32
"""Maximum number of positions of a Hugging Face model's prompts."""


def attribute(
    run: OptionalRunName = None,
    /,
    root: Root = Path("runs"),
    step: Step = None,
    task: TaskName = None,
    corpus: Corpus = None,
    hf: str | None = None,
    method: tuple[str, ...] = (),
    nodes: str = "head",
    layer: tuple[int, ...] = (),
    corrupt: str = "key",
    metric: str = "logit-difference",
    compare: bool = False,
    libraries: bool = False,
    rows: int = 64,
    seed: int = 0,
    csv: Path | None = None,
    out: Path | None = None,
) -> None:
    """Show which heads of a run or a Hugging Face model matter: exact effects, and estimates of attribution methods.

    Args:
        hf: Instead of a run, a Hugging Face causal LM: a folder, or a name that transformers finds by itself.
        method: Methods to compare with exact patching, such as eap-ig; by default attribution-patching and eap-ig, and
            for heads of a run integrated-gradients.
        nodes: head, input (a head's queries, keys or values) or edge (a path from a head to an input of a later head).
        layer: Only nodes of these layers: in a large model exact patching takes minutes.
        corrupt: What is corrupted: key (where the answer is found), answer (what it is), absent (the key is gone),
            resample (the whole prompt), or the key's embedding: noise-0.5, noise-1 or noise-3.
        metric: logit-difference, logit, log-probability, probability or kl.
        compare: Score methods against exact effects: ranks, recall, faithfulness, cost. By default all ihlab methods.
        libraries: With --compare, also score the methods of other libraries. They can take minutes.
        rows: Number of prompts.
        seed: Seed of the prompts.
        csv: Write the table here, with all nodes.
        out: Draw maps of the nodes as a page to explore, with the methods beside the exact effects (.html, 4.8 MB, with
            everything that it needs).
    """
    require(out is None or not compare, "--out draws effects: leave out --compare.")
    require(
        not layer or not compare,
        "--layer leaves out nodes, but --compare scores all: leave out --layer.",
    )
    opened = found_run(run, hf, root, task, corpus, step)
    check_output("--csv", csv, TABLES, opened)
    check_output("--out", out, PAGES, opened)
    from ihlab.attribution import attribute as estimate
    from ihlab.attribution import compare as scored
    from ihlab.attribution import exact, problem
    from ihlab.interp.repeated import RepeatedTokens
    from ihlab.interp.sources import opened_model

    kind = "prompts"
    with reading(hf):
        if opened is not None:
            step = opened.require_checkpoint(step)
            opened.require_task()
            name = f"{opened.folder.name} at step {step}"
            model: Any = opened.model(step)
            asked: Any = opened.config.task
        else:
            model, name = opened_model(causal_lm(str(hf))), model_name(str(hf))
            asked = RepeatedTokens(model, min(HF_LENGTH, model.tokens.length))
            kind = asked.described(asked.drawn(1, seed))
        patching = problem(model, asked, corrupt, rows, seed, metric=metric)
        shown = method or SHOWN
        if not method and hf is None and nodes == "head":
            shown = (*SHOWN, "integrated-gradients")
        if compare:
            table = scored(patching, method or None, nodes, libraries=libraries)
        else:
            table = exact(patching, nodes, layer or None)
            for each in shown:
                table[each] = estimate(patching, each, nodes)["effect"]
    clean, corrupted = (end.mean().item() for end in patching.ends)
    if compare:
        print_table(table.loc[table["forward"] >= 0, SCORES], f"Methods of {name}")
    else:
        ranked = table.sort_values("effect", key=abs, ascending=False, kind="stable")
        listed = ranked.drop(columns="reverse_fraction").head(LISTED)
        print_table(listed, f"The {len(listed)} largest of {len(ranked)} effects in {name}")
    console().print(
        f"{metric.replace('-', ' ').capitalize()} of {rows} {kind}: {clean:.3g} clean, {corrupted:.3g} corrupted "
        f"({corrupt})."
    )
    if csv is not None:
        write_table(table, csv)
    if out is not None:
        from ihlab.plots.interactive import effects

        title = name.replace(" at step", ", step")
        write_interactive(effects(table, *shown, title=title), out)
