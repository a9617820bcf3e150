"""The generator of iGSM against its verifier: every solution passes, every wrong one fails."""

import runpy
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import tyro
from paired import Bar, figure
from tables import show

from tasks.igsm import IGSMTask
from tasks.igsm.check.verify import verify
from tasks.igsm.problem import Problem
from tasks.igsm.words import CATEGORY_OF

MAKE = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "tasks" / "igsm" / "mutants.py"))
MUTANTS = MAKE["mutants"](CATEGORY_OF)
CHUNK = 500

TASKS = {
    "op = 15, natural": IGSMTask(ops="15", length=1023),
    "op <= 15, compact": IGSMTask(ops="<=15", format="compact", length=1023),
    "op = 24 (hard), natural": IGSMTask(ops="24", difficulty="hard", split="test", length=1023),
    "op <= 4 (toy), compact": IGSMTask(ops="<=4", difficulty="toy", format="compact", length=128),
}


def measure(quick: bool = False, problems: int = 20_000) -> pd.DataFrame:
    """The tables for so many problems; when quick, for as few as it can be done with."""
    return tables(2_000 if quick else problems)


def tables(problems: int) -> pd.DataFrame:
    """The share of solutions that pass and the time it takes; the share of mutants of each kind that fail."""
    rows: list[dict[str, object]] = []
    made: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for name, task in TASKS.items():
        passed, milliseconds = [], []
        for chunk in _chunks(task, max(1, problems // len(TASKS) // CHUNK)):
            started = time.process_time()
            parsed = [Problem.parse(prompt, task.language.modulus) for prompt, _ in chunk]
            verdicts = [verify(problem, solution) for problem, (_, solution) in zip(parsed, chunk, strict=True)]
            milliseconds.append((time.process_time() - started) / len(chunk) * 1e3)
            passed += [verdict.minimal and verdict.lenient and verdict.final for verdict in verdicts]
            if len(milliseconds) == 1:
                for kind, errors in _mutants(chunk, parsed, task.language.modulus):
                    made[kind] += 1
                    failed[kind] += bool(errors)
                    named[kind] += errors == {MUTANTS[kind][0]}
        title = "iGSM: generated solutions held against the verifier"
        note = f"{len(passed):,} problems"
        rows += [
            figure(title, f"{name}: share right", [float(np.mean(passed))], "", Bar(1, at_least=True), note),
            figure(title, f"{name}: parse and verify", milliseconds, "CPU ms", Bar(1) if task.ops == "15" else None),
        ]
    title = f"iGSM: share of wrong solutions that fail ({CHUNK} problems of each kind above)"
    for kind, (error, _) in MUTANTS.items():
        note = f"{made[kind]} made; {named[kind] / made[kind]:.1%} '{error}'"
        rows.append(figure(title, kind, [failed[kind] / made[kind]], "", Bar(1, at_least=True), note))
    return pd.DataFrame(rows)


def _chunks(task: IGSMTask, n: int) -> Iterator[list[tuple[list[str], list[str]]]]:
    """n times `CHUNK` problems: prompt and solution as tokens."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        drawn = task.prompts(CHUNK, rng)
        yield [(task.decode(drawn.prompt(i)), task.decode(drawn.solution(i))) for i in range(CHUNK)]


def _mutants(
    chunk: list[tuple[list[str], list[str]]], parsed: list[Problem], modulus: int
) -> Iterator[tuple[str, set[str]]]:
    """The kind of each mutant that these problems allow, and the errors found in it."""
    for seed, ((prompt, solution), problem) in enumerate(zip(chunk, parsed, strict=True)):
        for kind in MUTANTS:
            mutant = MAKE["mutate"](kind, MUTANTS, prompt, solution, modulus, seed)
            if mutant is not None:
                yield kind, set(verify(problem, mutant).errors)


def main(problems: int = 100_000) -> None:
    """Print the tables.

    Args:
        problems: How many to check, over all kinds.
    """
    show(tables(problems))


if __name__ == "__main__":
    tyro.cli(main)
