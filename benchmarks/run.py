"""`make bench`: measure, print and write `results.md` beside this file; exit with 1 if a limit is exceeded."""

import datetime
import os
import platform
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import cost_curves
import decode
import ensembles
import generators
import heads
import igsm
import long_rows
import pandas as pd
import shifted_llama
import startup
import theory
import train_step
import tyro
import variants
from paired import missed
from tables import HEADINGS, cells, show

PAGE = Path(__file__).with_name("results.md")
PACKAGES = ("torch", "transformers", "transformer-lens", "numba")
EXPLANATION = """Written by `make bench`, all from one run. The sides of a comparison take turns, A B A B. A time or a
speed is the median of its turns and the range from least to most. A ratio is the median of paired ratios, turn i of
one side over turn i of the other, with the range of their middle half.

A training step is forward, loss, backward, clipping to norm 1, fused AdamW and zeroing the gradients, in float32 on one
thread, every model in a process of its own. Ours and the Llama have the same weights, optimiser, batches and loss,
which is checked; the Llama computes logits at every position, as it has no way to be asked for other positions in each
row, and ours only where something is scored, as it trains. The ratio of the same work, with logits at every position on
both sides, stands beside. What any change of keys and values must cost is a step that multiplies each by a learned
number: they are read and written once, forward and backward. A first step compiles from an empty cache; it is not among
the turns. Every side is compiled as training compiles. Speed is counted FLOPs of products of matrices over the step's
time, as a share of the FLOP/s of one large product; memory is what a step adds at its peak to the process.

The generators run on one core against each task's rule as one would first write it in Python, and for induction as one
would write it in NumPy for all rows at once. All must keep the rule, and ask for as many answers.

Generated iGSM problems are held against the verifier, which reads nothing but words: every solution must pass.

Decoding is greedy with a KV cache, and ours and the Llama must write the same tokens. Head scores are held against
TransformerLens' `detect_head`, which takes one row at a time and must agree.

A Llama of transformers with shifted keys and values is held against the same Llama, which it equals at its first taps.

A variant of attention is held against vanilla in the same way, at one shape: a step, decoding one row, and what is
counted: parameters, FLOPs, what a step adds to memory, what a layer caches for each token and, beside that, for a row.

An ensemble is a number of whole runs with different seeds, stacked into one model or one after another, evaluations and
files included; members must end at the losses that they have alone. What is compiled was compiled before its turns.

The exponent of a cost is the slope of its logarithm over that of what grows, all else as in the base:
{base}.
Beside it stands the exponent of what was counted over the same range: FLOPs of products of matrices, and the bytes that
a step keeps (`memory_estimate`). Counting leaves out what every operation costs however small it is.

A long row is alone in its batch. Its training step has logits at every position on both sides, and its forward pass is
held against the same network with flex attention, compiled, which has no backward pass on a CPU.

![Cost curves: time and memory of a training step, as measured and as counted](cost_curves.svg)"""


PARTS: dict[str, Callable[[bool], pd.DataFrame]] = {
    "generators": generators.measure,
    "igsm": igsm.measure,
    "startup": startup.measure,
    "theory": theory.measure,
    "heads": heads.measure,
    "decode": decode.measure,
    "train_step": train_step.measure,
    "variants": variants.measure,
    "ensembles": ensembles.measure,
    "cost_curves": cost_curves.measure,
    "shifted_llama": shifted_llama.measure,
    "long_rows": long_rows.measure,
}


def main(quick: bool = False, problems: int = 100_000, only: tuple[str, ...] = ()) -> None:
    """Measure everything.

    Args:
        quick: Try the code with few turns and one shape. Nothing is written, and the numbers are not reliable.
        problems: Number of generated iGSM problems that the verifier checks, unless quick.
        only: Names of the parts to measure; by default all. If given, the page is not written.
    """
    unknown = set(only) - set(PARTS)
    if unknown:
        sys.exit(f"There is no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}.")
    measures = PARTS | {"igsm": partial(PARTS["igsm"], problems=problems)}
    parts, sentences = [], []
    for name in only or PARTS:
        try:
            parts.append(measures[name](quick).astype({"bar": object}))
        except Exception as error:  # keep the other parts: they take half an hour and do not need this one
            traceback.print_exc()
            sentences.append(f"{name}: not measured ({type(error).__name__}).")
    if parts:
        figures = pd.concat(parts, ignore_index=True)
        figures["bar"] = figures["bar"].where(figures["bar"].notna(), None)
        sentences += missed(figures)
        show(figures)
        if not quick and not only:
            PAGE.write_text(page(figures, sentences), encoding="utf-8")
    if sentences:
        sys.exit("Missed: " + " ".join(sentences))


def page(figures: pd.DataFrame, sentences: list[str]) -> str:
    """Return the tables as Markdown, with the machine and the versions."""
    lines = ["# Benchmarks", "", EXPLANATION.format(base=cost_curves.base()), ""]
    lines += [f"- {datetime.date.today():%Y-%m-%d}"]
    lines += [f"- {processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"]
    lines += ["- " + ", ".join(f"{name} {version(name)}" for name in PACKAGES), ""]
    lines += ["Bars missed:", "", *(f"- {sentence}" for sentence in sentences)] if sentences else ["All bars are kept."]
    for title, part in figures.groupby("table", sort=False):
        lines += ["", f"## {title}", ""]
        lines += [_markdown(HEADINGS), _markdown(["---"] * len(HEADINGS)), *map(_markdown, cells(part))]
    return "\n".join(lines) + "\n"


def processor() -> str:
    """Return the CPU's model name, if the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _markdown(row: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(row) + " |"


if __name__ == "__main__":
    tyro.cli(main)
