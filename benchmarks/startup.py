"""How long `ihlab --help` takes, as a process."""

import statistics
import subprocess
import sys
import time

BAR = 0.7  # seconds


def measure(rounds: int) -> tuple[list[dict[str, str]], list[str]]:
    """A table, and a sentence if the bar was missed."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "ihlab", "--help"], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
    median = statistics.median(seconds)
    table = [{"command": "ihlab --help", "seconds": f"{median:.2f} ({min(seconds):.2f} .. {max(seconds):.2f})"}]
    return table, [] if median <= BAR else [f"`ihlab --help` takes {median:.2f} s, not {BAR}."]
