"""Start-up time of `ihlab --help`."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
from paired import Bar, figure, ratio, take_turns, timed

TABLE = "Start-up, as a process"


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the seconds of `ihlab --help`, and of a Python interpreter that does nothing."""
    ihlab = str(Path(sys.executable).with_name("ihlab"))
    seconds = take_turns(
        {
            "ihlab": timed(lambda: subprocess.run([ihlab, "--help"], check=True, stdout=subprocess.DEVNULL)),
            "python": timed(lambda: subprocess.run([sys.executable, "-c", ""], check=True)),
        },
        rounds=3 if quick else 7,
    )
    return pd.DataFrame(
        [
            figure(TABLE, "ihlab --help", seconds["ihlab"], "s", Bar(0.7)),
            figure(TABLE, "python -c ''", seconds["python"], "s"),
            ratio(TABLE, "ihlab --help / python -c ''", seconds["ihlab"], seconds["python"]),
        ]
    )
