"""Figure 8: its errors against a slow count, its verdicts on planted curves, the published curve."""

import io
import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from ihlab import Run
from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.experiment import SCALES, Scale
from ihlab.measure.batches import EVAL_SEED
from ihlab.plots.hops import hop_errors, hop_ticks
from ihlab.studies.figure8 import DEPTHS, Figure8, base, origin
from ihlab.studies.hops import hop_table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(smoke):
    return smoke("figure8")


def test_the_table_has_an_error_for_every_run_and_hop(made):
    data = made[1].data()
    assert data.groupby(["attention", "n_layers", "seed"])["hops"].apply(list).tolist() == [[0, 1, 2]] * 4
    assert data["error"].between(0, 1).all()


def test_errors_are_wrong_letters_counted_one_by_one(made):
    root, folder = made
    names = [entry["run"] for entry in json.loads((folder.path / "manifest.json").read_text())["runs"]]
    run = Run.open(root / "runs" / min(names))
    model, task = run.model(), run.config.task
    counted = []
    for k in range(task.max_hops + 1):
        rows = task.batch_of(k, 100, np.random.default_rng(EVAL_SEED))
        guesses = model(torch.from_numpy(rows.inputs.copy())).argmax(dim=-1)
        asked = [(r, t) for r, t in np.ndindex(rows.targets.shape) if rows.targets[r, t] < task.none and t > 0]
        wrong = sum(int(guesses[r, t]) != rows.targets[r, t] for r, t in asked)
        counted.append(wrong / len(asked))
    assert hop_table(run)["error"].tolist() == pytest.approx(counted)


Error = Callable[[int], float]


def planted(vanilla: Error, shifted: Error, depths=DEPTHS["laptop"], hops=8, noise=0.001, seeds=5) -> pd.DataFrame:
    """Errors that grow with k: `vanilla` and `shifted` map k to an error, seeds lie apart by `noise` and more."""
    rows = [
        {"attention": kind, "n_layers": depth, "seed": seed, "hops": k, "error": error(k) + noise * seed * (1 + k / 8)}
        for kind, error in (("vanilla", vanilla), ("KV shifting", shifted))
        for depth in depths
        for seed in range(seeds)
        for k in range(hops + 1)
    ]
    return pd.DataFrame(rows)


def verdicts(data: pd.DataFrame, scale: Scale) -> list[str]:
    """Of the sentences about errors; those about horizons are tested in test_hops.py."""
    claims = judged(Figure8().claims(data, scale))
    return [claim.verdict for claim in claims if claim.source != "The hop horizon k*"]


def steep(least: int) -> Error:
    """No error up to `least` hops, and a tenth more for each beyond."""
    return lambda k: 0.1 * max(k - least, 0)


def gentle(k: int) -> float:
    return 0.002 * k


NOT_AT_THREE_LAYERS = [NOT_TESTED, NOT_TESTED]


def test_the_papers_picture_gets_the_papers_verdicts():
    """Three layers: vanilla degrades beyond 2 hops, KV shifting reaches 4."""
    assert verdicts(planted(steep(2), gentle), "laptop") == ["holds"] * 2 + NOT_AT_THREE_LAYERS + ["holds"] * 2


def test_the_opposite_picture_gets_the_opposite_verdicts():
    assert verdicts(planted(gentle, steep(2)), "laptop") == ["fails"] * 2 + NOT_AT_THREE_LAYERS + ["fails"] * 2


def test_equal_errors_bear_nothing_out():
    """The same errors for both: a bias for multi-hop is not shown; and small ones are no degradation."""
    assert verdicts(planted(gentle, gentle), "laptop") == ["undecided"] * 2 + NOT_AT_THREE_LAYERS + ["fails", "holds"]


def test_noise_decides_nothing():
    def around(k: int) -> float:
        return 0.05 * k / 4

    data = planted(lambda k: around(k) + 0.05 * (k == 4), around, noise=0.05)
    assert verdicts(data, "laptop") == ["undecided"] * 2 + NOT_AT_THREE_LAYERS + ["undecided"] * 2


@pytest.mark.parametrize("scale", SCALES)
def test_sentences_about_five_layers_are_tested_where_there_are_five_and_the_rows_have_the_hops(scale):
    task = base(scale).task
    data = planted(steep(8), gentle, DEPTHS[scale], task.max_hops)
    claims = Figure8().claims(data, scale)
    named = [claim for claim in claims if claim.sentence.endswith("(L = 5).")]
    assert len(named) == 2
    large = max(DEPTHS[scale]) >= 5 and task.max_hops >= 16
    assert [claim.verdict for claim in named] == (["holds"] * 2 if large else [NOT_TESTED] * 2)
    assert large == (scale in ("gpu", "paper"))
    for claim in named:
        said = f"The models have {max(DEPTHS[scale])} layers and rows at most {task.max_hops} hops"
        assert claim.why.startswith(said) != large


@pytest.mark.parametrize("scale", ["laptop", "gpu"])
def test_claims_sentence_and_picture_follow_from_the_stored_table(scale):
    data = planted(steep(2), gentle, DEPTHS[scale], base(scale).task.max_hops)
    stored = pd.read_csv(io.StringIO(data.to_csv(index=False)))
    first, again = ([c.to_dict() for c in judged(Figure8().claims(t, scale))] for t in (data, stored))
    assert again == first
    assert Figure8().summary(stored, scale) == Figure8().summary(data, scale)
    assert len(Figure8().draw(stored, scale).axes) == 2


def test_the_made_up_table_has_the_columns_of_the_real_one(made):
    assert list(planted(gentle, gentle).columns) == list(made[1].data().columns)
    stored = [c.to_dict() for c in judged(Figure8().claims(made[1].data(), "smoke"))]
    assert stored == made[1].claims()


def published(shift: float, spread: float) -> pd.DataFrame:
    """Five seeds of vanilla about the published errors, and half of them for KV shifting."""
    same = pd.concat(
        origin().assign(attention="vanilla", seed=seed, error=lambda t, by=shift + spread * (seed - 2): t["error"] + by)
        for seed in range(5)
    )
    return pd.concat([same, same.assign(attention="KV shifting", error=same["error"] / 2)])


@pytest.mark.parametrize(
    ("shift", "spread", "verdict"), [(0.01, 0.001, "holds"), (0.2, 0.001, "fails"), (0.055, 0.02, "undecided")]
)
def test_the_published_curve_agrees_with_what_is_near_it(shift, spread, verdict):
    every = origin()
    assert every.groupby("n_layers")["hops"].apply(list).to_dict() == {n: list(range(17)) for n in range(2, 7)}
    agreement = judged(Figure8().claims(published(shift, spread), "paper"))[-1]
    assert agreement.sentence == "Our vanilla reproduces the original's."
    assert agreement.estimate.value == pytest.approx(shift)
    assert agreement.verdict == verdict


def test_the_papers_scale_is_the_originals():
    run = base("paper")
    task, model = run.task, run.model
    assert (task.length, task.max_hops, task.alphabet, task.vocab_size) == (99, 16, 4, 23)
    assert (model.d_model, model.n_heads, model.norm, model.mlp, model.positional) == (
        128,
        4,
        "layer",
        "gelu",
        "learned",
    )
    assert (model.dropout, model.unembedding, model.d_vocab) == (0.1, "none", 128)
    assert (run.lr, run.batch_size, run.warmup, run.schedule, run.steps) == (1e-4, 32, 1000, "linear", 100_000)


def test_each_depth_is_a_curve_and_the_published_one_is_dotted():
    axes = Figure().subplots()
    data = planted(lambda k: 0.1 * k, lambda k: 0, (2, 3), 4, seeds=3).query("attention == 'vanilla' and hops > 0")
    hop_errors(axes, data, origin())
    solid = [line for line in axes.get_lines() if line.get_linestyle() == "-"]
    assert [line.get_label() for line in solid] == ["2 layers", "3 layers"]
    np.testing.assert_allclose(solid[0].get_xydata(), [[k, 0.1 * k + 0.001 * (1 + k / 8)] for k in range(1, 5)])
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert [line.get_xdata().tolist() for line in dotted] == [[1, 2, 3, 4]] * 2, "no hops that the data lack"


def test_the_horizons_of_the_constructions_are_marked():
    axes = Figure().subplots()
    hop_ticks(axes, {1: 0, 2: 1, 3: 2}, 0.1)
    _, _, *marks = axes.get_lines()
    assert [list(line.get_xdata()) for line in marks] == [[1, 1], [2, 2]]
