"""The generator of iGSM against its verifier: the fraction of solutions that pass, and the time."""

import time

import numpy as np
import pandas as pd
import tyro
from paired import Bar, figure
from tables import show

from tasks.igsm import IGSMTask
from tasks.igsm.problem import Problem
from tasks.igsm.verify import verify

CHUNK = 500

TASKS = {
    "op = 15, natural": IGSMTask(ops="15", length=1023),
    "op <= 15, compact": IGSMTask(ops="<=15", format="compact", length=1023),
    "op = 24 (hard), natural": IGSMTask(ops="24", difficulty="hard", split="test", length=1023),
    "op <= 4 (toy), compact": IGSMTask(ops="<=4", difficulty="toy", format="compact", length=128),
}


def measure(quick: bool = False, problems: int = 20_000) -> pd.DataFrame:
    """Return the table for this many problems; when quick, for 2,000."""
    return table(2_000 if quick else problems)


def table(problems: int) -> pd.DataFrame:
    """Return the fraction of solutions that pass, and the time."""
    rows: list[dict[str, object]] = []
    for name, task in TASKS.items():
        passed, milliseconds, rng = [], [], np.random.default_rng(0)
        for _ in range(max(1, problems // len(TASKS) // CHUNK)):
            drawn = task.prompts(CHUNK, rng)
            chunk = [(task.decode(drawn.prompt(i)), task.decode(drawn.solution(i))) for i in range(CHUNK)]
            started = time.process_time()
            verdicts = [verify(Problem.parse(prompt, task.language.modulus), solution) for prompt, solution in chunk]
            milliseconds.append((time.process_time() - started) / CHUNK * 1e3)
            passed += [verdict.minimal and verdict.lenient and verdict.final for verdict in verdicts]
        title = "iGSM: generated solutions held against the verifier"
        note = f"{len(passed):,} problems"
        rows += [
            figure(title, f"{name}: share right", [float(np.mean(passed))], "", Bar(1, at_least=True), note),
            figure(title, f"{name}: parse and verify", milliseconds, "CPU ms", Bar(1) if task.ops == "15" else None),
        ]
    return pd.DataFrame(rows)


def main(problems: int = 100_000) -> None:
    """Print the table.

    Args:
        problems: Total number of problems to check, over all tasks.
    """
    show(table(problems))


if __name__ == "__main__":
    tyro.cli(main)
