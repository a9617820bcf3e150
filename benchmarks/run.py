"""`make bench`: measure, write `benchmarks/results.md`, and exit with 1 if a stated bar was missed."""

import datetime
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import generators
import startup
import train_step
import tyro

Table = list[dict[str, str]]

PACKAGES = ("torch", "transformers", "transformer-lens", "numba", "numpy")

PAGE = """# Benchmarks

{date}. {machine}. {versions}.

Written by `make bench` from one run. Contenders take turns; times are medians (min .. max), ratios are
medians of the ratios of neighbouring turns (range: all but a tenth at each end). On a shared machine
trust the ratios, not the times.

## Induction rows, vocabulary 8000, length 512, one core

{generators}
## Start-up

{startup}
## A training step, fp32, one thread, fused AdamW, gradient clipping

small: vocabulary 192, length 48, d_model 32, batch 64; larger: 512, 64, 64, 64; four heads. Both sides
have the same weights and the same loss, which is asserted; the Llama computes logits at every
position, ours where one is scored.

{ratios}
{times}
## Bars

{bars}
"""


def markdown(table: Table) -> str:
    """A table in Markdown."""
    names = list(table[0])
    rows = [names, ["---"] * len(names), *([row[name] for name in names] for row in table)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def processor() -> str:
    """The CPU's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main(quick: bool = False) -> None:
    """Measure everything.

    Args:
        quick: Few rounds: to try the code, not to quote.
    """
    generator_table, generator_missed = generators.measure(3 if quick else 15)
    start_table, start_missed = startup.measure(3 if quick else 9)
    times, ratios, step_missed = train_step.measure(3 if quick else 40)
    missed = generator_missed + start_missed + step_missed
    page = PAGE.format(
        date=f"{datetime.date.today():%Y-%m-%d}",
        machine=f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        versions=", ".join(f"{name} {version(name)}" for name in PACKAGES),
        generators=markdown(generator_table),
        startup=markdown(start_table),
        ratios=markdown(ratios),
        times=markdown(times),
        bars="\n".join(f"- missed: {sentence}" for sentence in missed) or "All met.",
    )
    print(page)
    if not quick:
        (Path(__file__).parent / "results.md").write_text(page, encoding="utf-8")
    if missed:
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    tyro.cli(main)
