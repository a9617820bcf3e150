"""Made-up tables of a study, and the verdicts on them."""

import numpy as np
import pandas as pd

from ihlab.study.claim import judged
from ihlab.study.study import Study

HORIZON = 1000


def table(study: Study, of, seeds=None, noise=0.03):
    """One row per cell and seed with the columns that `of(cell)` returns, each give or take some
    noise.

    `of` may also take the seed. A study with a tuned rate also has tuning runs, of the same
    columns.
    """
    rng, rows = np.random.default_rng(0), []
    for cell in (*study.cells, *study.follow_up_cells):
        own = study.seeds(cell) if callable(study.seeds) else study.seeds
        kinds = {
            "run": own if seeds is None else range(seeds),
            "tuning": study.tuned.seeds if study.tuned else (),
        }
        for kind, chosen in kinds.items():
            for seed in chosen:
                near = {
                    name: value * rng.uniform(1 - noise, 1 + noise)
                    for name, value in of(cell).items()
                }
                rows.append(
                    {"kind": kind, "lr": 1e-2, "seed": seed, "horizon": HORIZON, **near, **cell}
                )
    return pd.DataFrame(rows)


def verdicts(study: Study, data: pd.DataFrame) -> dict[str, str]:
    """The verdict of each claim by its id."""
    return {claim.id: claim.verdict for claim in judged(study.claims(data, "laptop"))}
