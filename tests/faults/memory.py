"""Too little memory: commands under a memory limit of the system, so that some allocation fails.

A command must end normally or with a sentence. If the system aborts it, its second process prints
the sentence.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from tests.faults.table import Row, Tally

MEMORY = "too little memory, at any allocation"

SECONDS = 240.0

TRAIN = """
train induction --device cpu --steps 4 --batch-size 32 --eval-rows 64 --eval-every 2 --checkpoints 2 --warmup 1
--task.vocab-size 4000 --task.length 128 --model.n-layers 2 --model.d-model 512 --model.n-heads 8
""".split()


def ended(arguments: list[str], folder: Path, limit: int) -> str:
    """Run a command in at most `limit` bytes of address space. Return a description of a wrong end,
    or "".
    """
    done = subprocess.run(
        [sys.executable, "-m", "ihlab", *arguments, "--root", str(folder)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if done.returncode == 0:
        return ""
    last = done.stderr.splitlines()[-1:] or [""]
    if "Traceback" in done.stderr or not last[0].startswith("ihlab: "):
        return f"exit code {done.returncode}: {done.stderr[-800:]!r}"
    partial = list(folder.rglob("*.partial"))
    return f"{partial[0]} is left" if partial and done.returncode > 0 else ""


def campaign(tries: int, seed: int, folder: Path, least: int, most: int) -> list[Row]:
    """Return a row: training tried under evenly spread memory limits, and the number that ended
    without a sentence.
    """
    rng, tally = random.Random(seed), Tally()
    for i in range(tries):
        limit = int(least + (most - least) * (i + rng.random()) / tries)
        wrong = ended(TRAIN, folder / str(i), limit)
        tally.add(MEMORY, wrong, f"{limit / 2**20:.0f} MiB")
        shutil.rmtree(folder / str(i), ignore_errors=True)
    return tally.rows()
