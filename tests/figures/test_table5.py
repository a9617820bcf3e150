"""Table 5: the heads it counts, and verdicts on made-up heads."""

import pandas as pd

from figures.table5.study import TABLE5, counted
from ihlab.recipes.induction import KV1
from ihlab.study.claim import judged


def heads(rows: list[tuple[int, float, float, float, float]]) -> pd.DataFrame:
    """A table of heads from (seed, alpha1, alpha2, beta1, beta2), the same at both times."""

    def larger(a: float, b: float) -> str:
        return "own" if a > b else "previous"

    made = [
        {
            "curve": KV1, "seed": seed, "when": when, "alpha1": a1, "alpha2": a2, "beta1": b1, "beta2": b2,
            "key": abs(a1) / (abs(a1) + abs(a2)),
            "value": abs(b1) / (abs(b1) + abs(b2)), "key_raw": larger(a1, a2), "value_raw": larger(b1, b2),
            "key_gauge_free": larger(abs(a1), abs(a2)), "value_gauge_free": larger(abs(b1), abs(b2)),
        }
        for when in ("initialisation", "end")
        for seed, a1, a2, b1, b2 in rows
    ]  # fmt: skip
    return pd.DataFrame(made)


INDUCTION, OWN, BEFORE, CROSS = (
    (0.1, 0.9, 0.9, 0.1),
    (0.9, 0.1, 0.9, 0.1),
    (0.1, 0.9, 0.1, 0.9),
    (0.9, 0.1, 0.1, 0.9),
)


def test_cells_stand_as_in_the_papers_table():
    """Columns alpha1 > alpha2 and not, rows beta1 > beta2 and not."""
    kinds = [(OWN, 4), (INDUCTION, 3), (CROSS, 2), (BEFORE, 1)]
    table = heads([(0, *kind) for kind, many in kinds for _ in range(many)])
    end = table[table["when"] == "end"]
    assert counted(end, "raw").tolist() == counted(end, "gauge_free").tolist() == [[4, 3], [2, 1]]


def test_weights_leave_their_start_or_stay():
    def of_weights(*kinds):
        rows = [
            (seed, *kind) for seed in range(8) for kind in kinds for _ in range(8 + (-1) ** seed)
        ]
        data = heads(rows).query("when == 'end'")
        negative = (data[["alpha1", "alpha2", "beta1", "beta2"]] < 0).any(axis="columns")
        away = (data["alpha1"] + data["alpha2"] - 1).abs() > 0.1
        counts = data.assign(heads=1, sum_away=away, negative=negative).groupby("seed")[
            ["heads", "sum_away", "negative"]
        ]
        return [
            claim.verdict for claim in judged(TABLE5.claims(counts.sum().reset_index(), "laptop"))
        ]

    assert of_weights(INDUCTION, OWN) == ["fails", "fails"]
    assert of_weights((0.9, 0.9, 0.9, 0.1), (0.1, 0.2, 0.5, 0.5)) == ["holds", "fails"]
    assert of_weights((-0.1, 1.1, 0.9, 0.1), (0.5, 0.5, 1.0, -0.1)) == ["fails", "holds"]
