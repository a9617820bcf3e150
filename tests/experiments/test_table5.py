"""Table 5: the heads it counts, the tie between keys and values by simulation, and verdicts on made-up heads."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from ihlab.experiments import figure1a, figure1b
from ihlab.experiments.reproduce import reproduce
from ihlab.experiments.table5 import Table5, counted, coupling
from ihlab.training.run import Run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("table5")
    [folder] = reproduce(["table5"], "smoke", runs=root / "runs", figures=root / "figures", console=Console(quiet=True))
    return root, folder


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu", "paper"])
def test_the_runs_are_the_shifted_ones_of_figure_1(scale):
    every = [*figure1a.Figure1a().runs(scale), *figure1b.Figure1b().runs(scale)]
    shifted = [plan.config for plan in every if plan.config.model.attention == "kv_shift"]
    assert [plan.config for plan in Table5().runs(scale)] == shifted
    assert len(shifted) == 4 * figure1a.SEEDS[scale]


def test_stored_heads_are_the_runs_own_metrics(made):
    """metrics.csv holds alpha and beta of each evaluation, written by other code."""
    root, folder = made
    data, runs = folder.data(), json.loads((folder.path / "manifest.json").read_text())["runs"]
    heads = {8: 1, 16: 2, 32: 2}
    assert len(data) == 2 * 2 * (2 + sum(heads.values()))  # times, seeds, heads
    for entry in runs:
        metrics = Run.open(root / "runs" / entry["run"]).metrics.set_index("step")
        mine = data[(data["curve"] == entry["curve"]) & (data["seed"] == entry["seed"])]
        assert set(mine["step"]) == {0, metrics.index[-1]}
        for head in mine.itertuples():
            stored = {
                name: metrics.loc[head.step, f"{name}_0.{head.head}"] for name in ("alpha1", "alpha2", "beta1", "beta2")
            }
            assert [getattr(head, name) for name in stored] == pytest.approx(list(stored.values()), abs=1e-7)
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
            "curve": figure1a.KV1, "seed": seed, "when": when, "key": abs(a1) / (abs(a1) + abs(a2)),
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


def verdicts(kinds: list[tuple[float, float, float, float]]) -> list[str]:
    table = heads([(seed, *kind) for seed in range(5) for kind in kinds])
    return [claim.verdict for claim in Table5().claims(table, "laptop")]


def test_the_papers_table_bears_the_papers_sentences_out():
    """50, 17, 9 and 52 of 128, an eighth of them, in every one of five seeds."""
    assert verdicts([OWN] * 6 + [INDUCTION] * 2 + [CROSS] + [BEFORE] * 7)[:2] == ["holds", "holds"]


def test_heads_that_all_became_induction_heads_deny_the_diagonal():
    assert verdicts([INDUCTION] * 8) == ["fails", "undecided", "holds"] * 2


def test_the_raw_count_follows_the_gauge_and_the_other_does_not():
    """c = -1 for every alpha: the same models, the opposite raw columns."""
    kinds = [OWN] * 4 + [BEFORE] * 4
    turned = [(-a1, -a2, b1, b2) for a1, a2, b1, b2 in kinds]
    assert verdicts(kinds)[:2] == verdicts(kinds)[3:5] == ["holds", "holds"]
    assert verdicts(turned)[:2] == ["fails", "fails"]
    assert verdicts(turned)[3:5] == ["holds", "holds"]


def test_coupling_by_hand():
    """All heads on the diagonal, half in each cell: 1, where untied ones would put 1 / 2."""
    estimate = coupling([np.array([[2, 0], [0, 2]])] * 5)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.5, 0.5, 0.5))
    two = coupling([np.array([[2, 0], [0, 2]])] * 2)
    assert (two.value, two.low) == (0.5, -np.inf)


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


def test_redrawing_needs_no_torch_and_gives_the_same_files(made):
    root, folder = made
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    for name in ("table5-smoke.svg", "table5-smoke.png", "claims.json"):
        (folder.path / name).unlink()
    script = "import sys; from ihlab.cli import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    arguments = ["reproduce", "table5", "--scale", "smoke", "--from-data", "--figures", str(root / "figures")]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
