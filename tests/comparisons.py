"""Made-up tables of compared variants, for tests."""

import numpy as np
import pandas as pd

AROUND = np.array([93, 95, 98, 99, 101, 102, 105, 107])
"""Numbers of steps of eight seeds, around 100."""
NEVER = np.full(8, np.inf)


def runs(variant, setting, steps, best=1.0, lr=1e-2, kind="run", first=0):
    """Return the rows of one run per number of steps, with seeds from `first`."""
    best = np.broadcast_to(best, len(steps))
    return pd.DataFrame(
        {
            "kind": kind, "variant": variant, "setting": setting, "lr": lr, "seed": first + np.arange(len(steps)),
            "n_params": 1000, "steps_to_90": np.array(steps, dtype=float), "accuracy": best, "best": best,
            "horizon": 1000,
        }
    )  # fmt: skip


def cell(variant, setting, steps, best=1.0):
    """Return the rows of a cell's runs, and of two tuning runs at each of three rates."""
    tuning = [
        runs(variant, setting, steps[:2], lr=lr, kind="tuning", first=100)
        for lr in (4e-3, 1e-2, 2.5e-2)
    ]
    return pd.concat([*tuning, runs(variant, setting, steps, best)])
