"""The basin map: starts that can be stacked, the theorem's basins, and verdicts on maps made by hand."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from ihlab.experiments.basin_map import CURVE, SEEDS, BasinMap, flow, starts
from ihlab.experiments.reproduce import ON_REQUEST, reproduce
from ihlab.theory.landscape import basins
from ihlab.training.ensemble import check_members
from ihlab.training.run import Run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("basin_map")
    [folder] = reproduce(
        ["basin_map"], "smoke", runs=root / "runs", figures=root / "figures", console=Console(quiet=True)
    )
    return root, folder


def test_it_is_made_only_if_it_is_named():
    assert "basin_map" in ON_REQUEST


@pytest.mark.parametrize(("scale", "side"), [("smoke", 2), ("laptop", 10)])
def test_every_start_is_a_run_of_every_seed_and_all_can_be_stacked(scale, side):
    plans = BasinMap().runs(scale)
    assert len({plan.config.digest for plan in plans}) == len(plans) == side**2 * SEEDS[scale]
    assert all(plan.stacked for plan in plans)
    check_members([plan.config for plan in plans])


def test_the_starts_by_hand():
    assert starts("laptop") == [-0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]
    assert starts("gpu") == starts("paper")
    assert starts("gpu")[:3] == [-0.45, -0.35, -0.25]
    assert (len(starts("gpu")), starts("gpu")[-1]) == (20, 1.45)


@pytest.mark.parametrize("n_tokens", [5, 12])
def test_the_flow_is_that_of_the_theorems_basins(n_tokens):
    """Found there with other code, from the same starts."""
    table = basins(n_tokens, points=6)
    twice = pd.concat([table, table.iloc[::-1]], ignore_index=True)  # each start stands at its own place
    mine = flow(twice["alpha1"].to_numpy(), twice["beta1"].to_numpy(), n_tokens)
    assert mine["basin"].tolist() == twice["basin"].tolist()
    assert mine["flow_time"].tolist() == twice["decided"].tolist()
    assert set(mine["basin"]) == {"induction", "negative"}


def test_a_start_outside_the_square_flows_to_the_other_solution():
    assert flow(np.array([1.4, -0.4]), np.array([-0.4, 1.4]), 32)["basin"].tolist() == ["negative", "induction"]


def test_the_table_is_what_the_metrics_say(tmp_path):
    """By hand: found at step 20 and lost again; a negative alpha1 counts by its size."""
    [plan] = [p for p in BasinMap().runs("laptop") if p.config.init_shift == (0.2, 1.4) and p.config.seed == 3]
    run = Run.create(plan.config, tmp_path)
    weights = {"alpha1_0.0": -0.5, "alpha2_0.0": 1.5, "beta1_0.0": 3.0, "beta2_0.0": -1.0}
    run.write_metrics([{"step": s, "accuracy": a} | weights for s, a in ((0, 0.0), (10, 0.89), (20, 0.9), (30, 0.5))])
    [row] = BasinMap().gather([(CURVE, run)], "laptop").query("kind == 'run'").to_dict("records")
    expected = {"alpha1": 0.2, "beta1": 1.4, "seed": 3, "steps": 20, "accuracy": 0.5, "own_key": 0.25}
    assert {name: row[name] for name in expected} == expected
    assert row["own_value"] == 0.75


def planted(law, share=1.0, seeds=5):
    """A laptop map with `law(alpha1, beta1, time)` as steps (inf: never) and `share` of the ends at the corner."""
    rng = np.random.default_rng(0)
    grid = pd.DataFrame(
        [{"seed": seed, "alpha1": a, "beta1": b} for seed in range(seeds) for b in starts("laptop")
         for a in starts("laptop")]
    )  # fmt: skip
    table = pd.concat([grid, flow(grid["alpha1"].to_numpy(), grid["beta1"].to_numpy(), 32)], axis=1)
    time = table["flow_time"].where(table["basin"] == "induction", np.inf)
    table["steps"] = law(table["alpha1"], table["beta1"], time) * rng.uniform(0.99, 1.01, len(table))
    table["accuracy"] = np.where(np.isinf(table["steps"]), 0.2, 1.0)
    at_corner = rng.random(len(table)) < share
    table["own_key"] = np.where(at_corner, 0.1, 0.9)
    table["own_value"] = 0.9
    return table.assign(kind="run")


def distance(a, b):
    return np.hypot(a, 1 - b)


@pytest.mark.parametrize(
    ("law", "share", "verdicts"),
    [
        (lambda a, b, time: 100 + time, 1.0, ["holds"] * 5),
        (lambda a, b, time: 100 + 100 * distance(a, b), 1.0, ["holds", "holds", "holds", "fails", "undecided"]),
        (lambda a, b, time: 300 - 100 * distance(a, b), 0.5, ["holds", "fails", "fails", "fails", "undecided"]),
        (lambda a, b, time: np.where(distance(a, b) < 0.7, 100 + 100 * distance(a, b), np.inf), 1.0,
         ["fails", "holds", "holds", "fails", "holds"]),
        (lambda a, b, time: np.where(np.isinf(time), 100.0, np.inf), 1.0,
         ["fails", "holds", "fails", "fails", "fails"]),
    ],
    ids=["the flow's time", "the distance", "far is fast", "only near the corner", "the other basin alone"],
)  # fmt: skip
def test_verdicts_on_maps_made_by_hand(law, share, verdicts):
    claims = BasinMap().claims(planted(law, share), "laptop")
    assert [claim.verdict for claim in claims] == verdicts, [claim.to_dict() for claim in claims]
    assert {claim.seeds for claim in claims} == {5}


def test_where_nothing_is_found_nothing_is_known_but_that():
    claims = BasinMap().claims(planted(lambda a, b, time: np.full(len(a), np.inf)), "laptop")
    assert [claim.verdict for claim in claims] == ["fails", *["undecided"] * 4]
    assert [claim.estimate.low for claim in claims[2:4]] == [-np.inf] * 2


def test_stored_runs_are_the_manifests(made):
    root, folder = made
    runs, manifest = folder.data().query("kind == 'run'"), json.loads((folder.path / "manifest.json").read_text())
    assert len(runs) == len(manifest["runs"]) == 8
    for (_, row), entry in zip(runs.iterrows(), manifest["runs"], strict=True):
        run = Run.open(root / "runs" / entry["run"])
        assert run.done["ensemble"] == 8
        assert run.config.init_shift == (row["alpha1"], row["beta1"])
        first, last = run.metrics.iloc[0], run.metrics.iloc[-1]
        assert (first["alpha1_0.0"], first["beta2_0.0"]) == pytest.approx((row["alpha1"], 1 - row["beta1"]))
        assert row["accuracy"] == pytest.approx(last["accuracy"], abs=1e-6)


def test_redrawing_needs_no_torch_and_gives_the_same_files(made):
    root, folder = made
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    for name in ("basin_map-smoke.svg", "basin_map-smoke.png", "claims.json"):
        (folder.path / name).unlink()
    script = "import sys; from ihlab.cli import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    arguments = ["reproduce", "basin_map", "--scale", "smoke", "--from-data", "--figures", str(root / "figures")]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
