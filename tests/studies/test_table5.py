"""Table 5: the heads it counts, the tie between keys and values by simulation, and verdicts on made-up heads."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims import stats
from ihlab.claims.claim import judged
from ihlab.claims.induction import KV1, SHAPES
from ihlab.studies.table5 import TABLE5, counted, coupling


@pytest.fixture(scope="module")
def made(smoke):
    return smoke("table5")


@pytest.mark.slow
def test_stored_heads_are_the_runs_own_metrics(made, trained):
    """metrics.csv holds alpha and beta of each evaluation, written by other code."""
    data = made[1].data()
    heads = {name: n_heads for name, (_, n_heads, positional) in SHAPES.items() if positional == "rope"}
    assert heads == {"8": 1, "8, 2 heads": 2, "32": 2}
    assert len(data) == 2 * 2 * (2 + sum(heads.values()))  # times, seeds, heads
    for curve, run in trained("table5"):
        metrics = run.metrics.set_index("step")
        mine = data[(data["curve"] == curve) & (data["seed"] == run.config.seed)]
        assert set(mine["step"]) == {0, metrics.index[-1]}
        for head in mine.itertuples():
            stored = {
                name: metrics.loc[head.step, f"{name}_0.{head.head}"] for name in ("alpha1", "alpha2", "beta1", "beta2")
            }
            assert [getattr(head, name) for name in stored] == pytest.approx(list(stored.values()), abs=1e-6)
            assert head.key_raw == ("own" if stored["alpha1"] > stored["alpha2"] else "previous")
            assert head.value_raw == ("own" if stored["beta1"] > stored["beta2"] else "previous")
            size = {name: abs(x) for name, x in stored.items()}
            assert head.key == pytest.approx(size["alpha1"] / (size["alpha1"] + size["alpha2"]), abs=1e-5)
            assert head.value == pytest.approx(size["beta1"] / (size["beta1"] + size["beta2"]), abs=1e-5)


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


INDUCTION, OWN, BEFORE, CROSS = (0.1, 0.9, 0.9, 0.1), (0.9, 0.1, 0.9, 0.1), (0.1, 0.9, 0.1, 0.9), (0.9, 0.1, 0.1, 0.9)


def test_cells_stand_as_in_the_papers_table():
    """Columns alpha1 > alpha2 and not, rows beta1 > beta2 and not."""
    kinds = [(OWN, 4), (INDUCTION, 3), (CROSS, 2), (BEFORE, 1)]
    table = heads([(0, *kind) for kind, many in kinds for _ in range(many)])
    end = table[table["when"] == "end"]
    assert counted(end, "raw").tolist() == counted(end, "gauge_free").tolist() == [[4, 3], [2, 1]]


def seeds_of(kinds: list[tuple[tuple[float, float, float, float], int]], seeds: int = 16) -> pd.DataFrame:
    """As many heads of each kind in every seed, but that odd seeds have one more of the first and one less of the last
    kind, and every fourth the other way round.
    """
    rows = []
    for seed in range(seeds):
        by = 1 if seed % 2 else -1 if seed % 4 == 0 else 0
        counts = [n + by * ((i == 0) - (i == len(kinds) - 1)) for i, (_, n) in enumerate(kinds)]
        rows += [(seed, *kind) for (kind, _), n in zip(kinds, counts, strict=True) for _ in range(n)]
    return heads(rows)


def verdicts(table: pd.DataFrame) -> list[str]:
    """Of the shares in the upper right corner, raw and gauge-free, and of the tie."""
    return [claim.verdict for claim in judged(TABLE5.claims(table, "laptop"))][2:]


RIGHT = [(INDUCTION, 12), (OWN, 4), (BEFORE, 4)]
WRONG = [(CROSS, 10), (INDUCTION, 6), (OWN, 2), (BEFORE, 2)]
"""Own keys 12 of 20 and own values 8 of 20: untied 48% are on the diagonal; 20% are."""
HALF = [(INDUCTION, 10), (OWN, 5), (CROSS, 5)]
"""Fewer on the diagonal than untied ones would be: 25% for 50%. With as many seeds of more, 50% for 38%."""


def test_every_claim_can_come_out_each_way():
    assert verdicts(seeds_of(RIGHT)) == ["holds"] * 3
    assert verdicts(seeds_of(WRONG)) == ["fails"] * 3
    other = seeds_of([(INDUCTION, 10), (BEFORE, 5), (OWN, 5)], 8)
    mixed = pd.concat([seeds_of(HALF, 8), other.assign(seed=other["seed"] + 8)], ignore_index=True)
    assert verdicts(mixed) == ["undecided"] * 3


def test_heads_that_all_became_induction_heads_are_not_coupled():
    """Of a tie between keys and values that never vary nothing is known."""
    assert verdicts(seeds_of([(INDUCTION, 8)], 8)) == ["holds", "holds", "undecided"]


def test_the_raw_count_follows_the_gauge_and_the_other_does_not():
    """c = -1 for every alpha: the same models, the opposite raw columns."""
    turned = [((-a1, -a2, b1, b2), n) for (a1, a2, b1, b2), n in RIGHT]
    assert verdicts(seeds_of(turned)) == ["fails", "holds", "holds"]


def test_weights_leave_their_start_or_stay():
    def of_weights(*kinds):
        found = judged(TABLE5.claims(seeds_of([(kind, 8) for kind in kinds], 8), "laptop"))
        return [claim.verdict for claim in found[:2]]

    assert of_weights(INDUCTION, OWN) == ["fails", "fails"]
    assert of_weights((0.9, 0.9, 0.9, 0.1), (0.1, 0.2, 0.5, 0.5)) == ["holds", "fails"]
    assert of_weights((-0.1, 1.1, 0.9, 0.1), (0.5, 0.5, 1.0, -0.1)) == ["fails", "holds"]


def test_the_papers_cells_are_counted_against_the_corner_of_an_induction_head():
    """50, 17, 9 and 52 of 128: 17 in the upper right corner, and more on the diagonal than untied ones would put."""
    paper = [(OWN, 50), (INDUCTION, 17), (CROSS, 9), (BEFORE, 52)]
    assert verdicts(seeds_of(paper, 8)) == ["fails", "fails", "holds"]


def test_coupling_by_hand():
    """All heads on the diagonal, half in each cell: 1, where untied ones would put 1 / 2. Seeds alike: no interval."""
    for n in (2, 5):
        alike = coupling([np.array([[2, 0], [0, 2]])] * n)
        assert (alike.value, alike.low, alike.high) == pytest.approx((0.5, -1, 1))


def test_the_jackknife_of_coupling_by_hand():
    """Three seeds of four heads: (2, 2), (3, 1), (1, 3) on the diagonal's cells. Untied, over other seeds, by hand.

    Own shares of keys, and of values, are 1/2, 3/4 and 1/4. Pairs of different seeds put, of 1/2 with 3/4, 1/2 with 1/4
    and 3/4 with 1/4, 1/2, 1/2 and 3/8 on the diagonal: 11/24 on average, so 13/24 more is there. Without each seed in
    turn 5/8, 1/2 and 1/2 more are.
    """
    cells = [np.array([[own, 0], [0, 4 - own]]) for own in (2, 3, 1)]
    estimate = coupling(cells)
    pseudo = [3 * 13 / 24 - 2 * left for left in (5 / 8, 1 / 2, 1 / 2)]
    by_hand = stats.mean(pseudo, stats.DIFFERENCE)
    assert estimate.value == pytest.approx(np.mean(pseudo))
    assert (estimate.low, estimate.high) == pytest.approx((by_hand.low, by_hand.high))


@pytest.mark.slow
def test_coupling_is_not_fooled_by_models_that_share_their_first_numbers():
    """A one-head model's beta is a two-head model's second alpha, as in runs of one seed; nothing is tied."""
    rng, values, hits = np.random.default_rng(0), [], 0
    for _ in range(1500):
        cells = []
        for own in rng.random((5, 4)) < 0.7:
            pairs = [(own[0], own[1]), (own[0], own[2]), (own[1], own[3])]  # (key, value)
            cells.append(np.array([[sum((k == a) & (v == b) for k, v in pairs) for a in (1, 0)] for b in (1, 0)]))
        estimate = coupling(cells)
        values.append(estimate.value)
        hits += estimate.low <= 0 <= estimate.high
    assert np.mean(values) == pytest.approx(0, abs=4 * np.std(values) / np.sqrt(1500))
    assert 0.91 <= hits / 1500 <= 1
