"""`make bench`: measure, print and write `results.md` beside this file; exit with 1 if a goal is missed."""

import datetime
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cost_curves
import decode
import ensembles
import pandas as pd
import step_parts
import sweeps
import tools
import train_step
import tyro
import variants
import wait
from paired import missed

PAGE = Path(__file__).with_name("results.md")
STORED = Path(__file__).with_name("results.csv")
"""The figures of the last sitting of each part, from which the page is written."""
PACKAGES = ("torch", "transformers", "numba")
INTRODUCTION = """Does `ihlab` train and decode as fast as other code, and how long do you wait? Each line of the
table compares two programs that took turns on one core, with the same weights, batches and optimiser; their losses or
tokens were checked to be equal. The ratio is the time of the first program divided by the time of the second, so below
1 is faster. It is the median of several starts of both processes, since a process can be a few percent slow for its
whole life. The interval is from the lowest start to the highest. "Compiled" is how Figure 1a trains on a laptop."""
EXPLAINED = {
    "A training step": """A step is forward, loss, backward, clipping to norm 1, fused AdamW and zeroing the gradients,
in float32. Ours computes logits only at scored positions, except where "logits everywhere" is said. MiB are what model
and step add to the process at the peak. A first step compiles from an empty cache. The goal of KV shifting against
vanilla is 1.05, or the floor if that is higher: keys and values are only multiplied by a learned number. Compiled steps
have no goal against the hand-written eager one any more: .30 (one layer) and .45 (two) were missed in three rounds,
with .32 to .36 and .46 to .52. How much compiling saves depends on the processor.""",
    f"Greedy decoding: prompt {decode.PROMPT}, {decode.NEW} new tokens, batch 1 (": """\
Decoding with the shift has no goal any more: 1.05, then 1.10, was missed in three rounds. A new token of these four
layers takes 262 tensor operations without the shift and 390 with it: 16 more for the keys and 16 for the values of each
layer (join the previous token's vector, lay out the weights, multiply twice, add, cut). At batch 1 each takes 4
microseconds, about what calling it costs; at batch 64 it takes 24, because it reads and writes 64 times as much. Only a
kernel of our own would join them. K only and V only have half of the operations and half to two thirds of the extra
time. In an earlier measurement, beside other work, decoding at batch 1 took 1.13 times as long as vanilla's with both
shifts, 1.08 with K only and 1.07 with V only; at batch 64 it took 1.12, 1.09 and 1.08 (least of eight turns).""",
    f"{decode.PLAIN_HF} of Hugging Face, the size of SmolLM2-135M: training": """\
The two models take turns in processes of their own. In one process, six turns of each took 3.29 s and, with the shift,
3.34 s (medians, on the same machine and day): why this ratio is 1.01 and the one below is not, we do not know.""",
    wait.TABLE: "Seconds from start to end of a process on one core, and what takes them.",
    cost_curves.TABLE: f"""An exponent is the slope of log cost over log size, with all else as in the base:
{cost_curves.base()}; KV shifting, eager. Beside it stands the exponent of what was counted: FLOPs of matrix products,
and the bytes that a step keeps. A laptop ends where 2,000 steps take an hour, which the last rows project. Beyond that,
use a [GPU](../docs/guides/gpu.md) or a smaller model.

![Cost curves: time and memory of a training step, as measured and as counted](cost_curves.svg)""",
    step_parts.TABLE: """Drawing is the time of the task's kernel; training draws beside the step before.
"Python between" is what is left of a step: the loop, the learning rate, and the running loss.""",
    tools.TABLE: """An exponent is the slope of log seconds over log size at the three largest sizes. `certify`
(over ids with margins=True) and `attack` are of the one-layer model with one head of width 8 from
[the page on proofs](../docs/proofs.md), whose questions grow with the square of its ids; `exact` is of both directions
and 64 prompts of 32 tokens.

![Seconds of certify, attack, exact and bench over the size that grows](tools.svg)""",
    "Where stacking pays": """Below 1, the stack is faster. Stacking saves the calls of small tensor operations, so it
pays for narrow models on one core.""",
    sweeps.TABLE: """The driver's own time for a run bounds what any number of workers can do. The work of
Ray's scheduler, which has processes of its own, is not in it.""",
}
"""The words above a folded table, by the beginning of its title."""

PARTS: dict[str, Callable[[bool], pd.DataFrame]] = {
    "train_step": train_step.measure,
    "step_parts": step_parts.measure,
    "decode": decode.measure,
    "ensembles": ensembles.measure,
    "wait": wait.measure,
    "cost_curves": cost_curves.measure,
    "tools": tools.measure,
    "sweeps": sweeps.measure,
    "variants": variants.measure,
}


def main(quick: bool = False, only: tuple[str, ...] = ()) -> None:
    """Measure everything, and write the page.

    Args:
        quick: Try the code with few turns and small models. Nothing is written, and the numbers are not reliable.
        only: Names of the parts to measure; by default all. The page keeps the last figures of the others.
    """
    unknown = set(only) - set(PARTS)
    if unknown:
        sys.exit(f"There is no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}.")
    parts, sentences = [], []
    for name in only or PARTS:
        started = time.perf_counter()
        try:
            parts.append(PARTS[name](quick).assign(part=name, sitting=sitting()))
        except (
            Exception
        ) as error:  # keep the other parts: they take half an hour and do not need this one
            traceback.print_exc()
            sentences.append(f"{name}: not measured ({type(error).__name__}).")
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    if parts:
        measured = pd.concat(parts, ignore_index=True)
        figures = with_stored(measured, STORED)
        print(page(measured, sentences))
        if not quick:
            figures.to_csv(STORED, index=False, float_format="%.6g")
            PAGE.write_text(page(figures, sentences), encoding="utf-8")
        sentences += missed(measured)
    if sentences:
        sys.exit("Missed: " + " ".join(sentences))


def read_figures(path: Path) -> pd.DataFrame:
    """Return the figures of a CSV; texts that are missing are empty."""
    return pd.read_csv(path, keep_default_na=False, na_values={"goal": [""]})


def with_stored(measured: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return new figures with the stored ones of other parts, in the order of `PARTS`."""
    if not path.exists():
        return measured
    stored = read_figures(path)
    others = stored[~stored["part"].isin(measured["part"]) & stored["part"].isin([*PARTS])]
    both = pd.concat([others, measured], ignore_index=True)
    return both.sort_values("part", key=lambda part: part.map([*PARTS].index), kind="stable")


def _number(x: float) -> str:
    """Return a number with three digits, or with all digits before the point if there are more."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def page(figures: pd.DataFrame, failed: list[str]) -> str:
    """Return the tables as Markdown: the ratios with a goal, then everything else, folded."""
    waits = figures["table"] == wait.TABLE
    goals = figures[figures["goal"].notna() & ~waits]
    lines = ["# Benchmarks", "", INTRODUCTION, ""]
    lines += _table(
        ("time of", "divided by time of", "goal, at most", "measured", "interval", ""),
        [
            (
                row.measured,
                row.against,
                f"{row.goal:.2f}",
                *_numbers(row, "{:.2f}".format),
                _kept(row),
            )
            for row in goals.itertuples()
        ],
    )
    lines += ["", *failed, f"`make bench`, {'; '.join(goals['sitting'].unique())}."]
    lines += _folded(
        wait.TABLE,
        figures[waits],
        ("", "goal, at most", "seconds", "interval", "", "what takes the time"),
        [
            (row.measured, f"{row.goal:g}", *_numbers(row), _kept(row), row.note)
            for row in figures[waits].itertuples()
        ],
    )
    for title, part in figures[~waits].groupby("table", sort=False):
        lines += _folded(
            str(title),
            part,
            ("", "divided by", "median", "interval", "unit", ""),
            [
                (row.measured, row.against, *_numbers(row), row.unit, row.note)
                for row in part.itertuples()
            ],
        )
    return "\n".join(lines) + "\n"


def sitting() -> str:
    """Return the day, the machine and the versions of a measurement."""
    packages = [f"{name} {version(name)}" for name in PACKAGES]
    where = [f"{datetime.date.today()}", processor(), f"{os.cpu_count()} cores"]
    return ", ".join([*where, f"Python {platform.python_version()}", *packages])


def processor() -> str:
    """Return the CPU's model name, if the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _folded(
    title: str, figures: pd.DataFrame, headings: Sequence[str], rows: Iterable[Sequence[str]]
) -> list[str]:
    words = [text for beginning, text in EXPLAINED.items() if title.startswith(beginning)]
    opened = ["", f'<details markdown="1"><summary>{title}</summary>', ""]
    return [
        *opened,
        *(line for text in words for line in (text, "")),
        *_table(headings, rows),
        "",
        *figures["sitting"].unique(),
        "",
        "</details>",
    ]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)]


def _numbers(row: Any, text: Callable[[float], str] = _number) -> tuple[str, str]:
    """Return a row's median and interval in words."""
    return text(row.median), f"{text(row.low)} to {text(row.high)}"


def _kept(row: Any) -> str:
    return "kept" if row.median <= row.goal else "**missed**"


if __name__ == "__main__":
    tyro.cli(main)
