"""Formation on planted runs whose order is known, on runs that never change, and on runs that are too short."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from ihlab.experiments.figure1a import KV1, V1, V2, V4, Figure1a
from ihlab.experiments.formation import ACCURACY, ALPHA, BETA, ORDERS, PREFIX, Formation, induction_heads, series
from ihlab.experiments.reproduce import reproduce
from ihlab.training.run import Run

STEPS = 10 * np.arange(50)
LAYERS = {KV1: 1, V1: 1, V2: 2, V4: 4}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("formation")
    [folder] = reproduce(
        ["formation"], "smoke", runs=root / "runs", figures=root / "figures", console=Console(quiet=True)
    )
    return root, folder


def test_the_runs_are_those_of_figure_1a():
    assert Formation().runs("laptop") == Figure1a().runs("laptop")


def ramp(start: int, low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    """From low to high within five evaluations from `start` on, over a slow drift and noise."""
    at = np.arange(len(STEPS))
    rise = np.clip((at - start) / 5, 0, 1)
    return low + (high - low) * rise + 0.02 * at / len(at) + 0.005 * rng.standard_normal(len(at))


def planted(root, starts: dict[str, dict[str, int]], seeds: int = 5):
    """Run folders of hand-written metrics: each curve's series change at the given evaluations, plus the seed's number.

    The last layer's first head is an induction head, the second never is and moves at once, far ahead.
    """
    trained = []
    for plan in Figure1a().runs("laptop"):
        seed, rng = plan.config.seed, np.random.default_rng([plan.config.seed, LAYERS[plan.curve]])
        if seed >= seeds:
            continue
        when = {name: start + seed for name, start in starts.get(plan.curve, {}).items()}
        flat = 0.1 + 0.005 * rng.standard_normal(len(STEPS))
        last = LAYERS[plan.curve] - 1
        table = {"step": STEPS, "accuracy_first": flat, f"prefix_{last}.0": flat[::-1], f"prefix_{last}.1": flat}
        if ACCURACY in when:
            table["accuracy_first"] = ramp(when[ACCURACY], 0.1, 0.9, rng)
        if PREFIX in when:
            table[f"prefix_{last}.0"] = ramp(when[PREFIX], 0.1, 0.9, rng)
            table[f"prefix_{last}.1"] = ramp(3, 0.1, 0.3, rng)
        if ALPHA in when:
            for name, series_ in (("alpha2", ALPHA), ("beta1", BETA)):
                share = ramp(when[series_], 0.3, 0.9, rng)
                other = {"alpha2": "alpha1", "beta1": "beta2"}[name]
                table |= {f"{name}_0.0": -1.7 * share, f"{other}_0.0": 1.7 * (1 - share)}
                table |= {f"{name}_0.1": ramp(3, 0.3, 0.9, rng), f"{other}_0.1": np.full(len(STEPS), 0.5)}
        run = Run.create(plan.config, root)
        run.write_metrics(pd.DataFrame(table).to_dict("records"))
        trained.append((plan.curve, run))
    return trained


RIGHT = {
    KV1: {ALPHA: 10, BETA: 11, PREFIX: 16, ACCURACY: 20},
    V2: {PREFIX: 20, ACCURACY: 25},
    V4: {PREFIX: 22, ACCURACY: 22},
}
WRONG = {
    KV1: {ALPHA: 25, BETA: 20, PREFIX: 20, ACCURACY: 15},
    V2: {PREFIX: 25, ACCURACY: 20},
    V4: {PREFIX: 25, ACCURACY: 20},
    V1: {PREFIX: 20, ACCURACY: 20},
}


@pytest.mark.parametrize(("starts", "verdict"), [(RIGHT, "holds"), (WRONG, "fails")])
def test_a_planted_order_is_found_and_judged(tmp_path, starts, verdict):
    """Starts are recovered to an evaluation, though a head that is no induction head moves long before."""
    data = Formation().gather(planted(tmp_path, starts), "laptop")
    changes = data[(data["kind"] == "change") & (data["found"] == "yes")]
    assert len(changes) == 5 * sum(map(len, starts.values()))
    for change in changes.itertuples():
        assert abs(change.start_evaluation - starts[change.curve][change.series] - change.seed) <= 1
        assert change.start == 10 * change.start_evaluation
    claims = Formation().claims(data, "laptop")
    assert [claim.verdict for claim in claims] == [verdict] * 11, [claim.to_dict() for claim in claims]
    assert {claim.seeds for claim in claims} == {5}


def test_what_never_changes_has_no_order(tmp_path):
    data = Formation().gather(planted(tmp_path, {KV1: {ALPHA: 10, BETA: 10}}), "laptop")
    changes = data[data["kind"] == "change"]
    assert set(changes.loc[changes["series"].isin([ACCURACY, PREFIX]), "found"]) == {"no"}
    claims = Formation().claims(data, "laptop")
    assert [claim.verdict for claim in claims] == ["undecided"] * 10 + ["holds"]
    said = [text.get_text() for axes in Formation().draw(data, "laptop").get_axes() for text in axes.texts]
    assert said.count("no change of phase found") == 3
    assert said.count("5 of 5 not known") == 2 * len(ORDERS)


def test_one_seed_without_a_change_leaves_the_order_open(tmp_path):
    data = Formation().gather(planted(tmp_path, RIGHT), "laptop")
    lost = (data["kind"] == "change") & (data["curve"] == V2) & (data["seed"] == 3) & (data["series"] == PREFIX)
    data.loc[lost, ["start_evaluation", "start", "middle_evaluation", "middle"]] = np.nan
    claims = {claim.measure.split(" of ")[0]: claim for claim in Formation().claims(data, "laptop")}
    assert claims[f"{V2}: start"].verdict == "undecided"
    assert claims[f"{V2}: start"].estimate.high == np.inf
    assert claims[f"{V4}: start"].verdict == "holds"


def test_heads_are_chosen_by_where_they_end():
    metrics = pd.DataFrame({"prefix_0.0": [0.9, 0.1], "prefix_0.1": [0.1, 0.5], "prefix_1.0": [0.0, 0.8]})
    assert induction_heads(metrics) == ["0.1", "1.0"]
    assert induction_heads(metrics.iloc[::-1]) == ["0.0"]
    assert induction_heads(metrics * 0.4) == ["0.0", "0.1", "1.0"]


def test_shares_are_those_of_the_heads_own_groups_whatever_their_scale():
    """Heads 0 and 1 share key/value head 0, heads 2 and 3 share 1; by hand for heads 1 and 2."""
    alpha = {"alpha1_0.0": [0.5, 0.1], "alpha2_0.0": [0.5, 0.3], "alpha1_0.1": [0.2, 0.0], "alpha2_0.1": [0.6, 0.4]}
    beta = {name.replace("alpha", "beta"): values for name, values in alpha.items()}
    rest = {"accuracy_first": [0.0, 1.0], "prefix_0.1": [0.2, 0.6], "prefix_0.2": [0.4, 0.8]}
    metrics = pd.DataFrame({**alpha, **beta, **rest})
    by_name = series(metrics, ["0.1", "0.2"], group=2)
    assert by_name[PREFIX].tolist() == pytest.approx([0.3, 0.7])
    assert by_name[ALPHA].tolist() == pytest.approx([(0.5 + 0.75) / 2, (0.75 + 1) / 2])
    assert by_name[BETA].tolist() == pytest.approx([(0.5 + 0.25) / 2, (0.25 + 0) / 2])
    turned = metrics.assign(**{name: -3 * metrics[name] for name in alpha})
    assert np.allclose(series(turned, ["0.1", "0.2"], group=2)[ALPHA], by_name[ALPHA])


def test_runs_too_short_for_an_onset_say_so_and_decide_nothing(made):
    _, folder = made
    changes = folder.data().query("kind == 'change'")
    assert set(changes["found"]) == {"too few evaluations"}
    assert len(changes) == 2 * (4 + 3 * 2)
    assert {claim["verdict"] for claim in folder.claims()} == {"undecided"}
    assert all(claim["value"] is None for claim in folder.claims())


def test_every_compared_pair_is_a_series_of_its_curve(made):
    data = made[1].data()
    for curve, *pair in ORDERS:
        assert set(pair) <= set(data.loc[data["curve"] == curve, "series"])


def test_redrawing_needs_no_torch_and_gives_the_same_files(made):
    root, folder = made
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    for name in ("formation-smoke.svg", "formation-smoke.png", "claims.json"):
        (folder.path / name).unlink()
    script = "import sys; from ihlab.cli import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    arguments = ["reproduce", "formation", "--scale", "smoke", "--from-data", "--figures", str(root / "figures")]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
