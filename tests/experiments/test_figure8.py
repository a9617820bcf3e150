"""Figure 8: its errors against a slow count, its verdicts on planted curves, the published curve."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console

from ihlab import Run
from ihlab.experiments.figure8 import DEPTHS, Figure8, base, hop_table, origin
from ihlab.experiments.reproduce import reproduce
from ihlab.plots.hops import hop_errors
from ihlab.training.metrics import EVAL_SEED


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("figure8")
    [folder] = reproduce(
        ["figure8"], "smoke", runs=root / "runs", figures=root / "figures", console=Console(quiet=True)
    )
    return root, folder


def test_the_table_has_an_error_for_every_run_and_hop(made):
    data = made[1].data()
    assert data.groupby(["attention", "n_layers", "seed"])["hops"].apply(list).tolist() == [[0, 1, 2]] * 4
    assert data["error"].between(0, 1).all()


def test_errors_are_wrong_letters_counted_one_by_one(made):
    run = next(Run.open(path) for path in sorted((made[0] / "runs").iterdir()))
    model, task = run.model(), run.config.task
    counted = []
    for k in range(task.max_hops + 1):
        rows = task.batch_of(k, 100, np.random.default_rng(EVAL_SEED))
        guesses = model(torch.from_numpy(rows.inputs.copy())).argmax(dim=-1)
        asked = [(r, t) for r, t in np.ndindex(rows.targets.shape) if rows.targets[r, t] < task.none and t > 0]
        wrong = sum(int(guesses[r, t]) != rows.targets[r, t] for r, t in asked)
        counted.append(wrong / len(asked))
    assert hop_table(run)["error"].tolist() == pytest.approx(counted)


def planted(vanilla, shifted, depths, hops, noise=0.001):
    """Two seeds of errors that grow with k: `vanilla` and `shifted` map k to an error."""
    rows = [
        {"attention": kind, "n_layers": depth, "seed": seed, "hops": k, "error": error(k) + noise * seed}
        for kind, error in (("vanilla", vanilla), ("KV shifting", shifted))
        for depth in depths
        for seed in range(3)
        for k in range(hops + 1)
    ]
    return pd.DataFrame(rows)


def test_the_papers_picture_gets_the_papers_verdicts():
    data = planted(lambda k: 0.05 * max(k - 4, 0), lambda k: 0.002 * k, DEPTHS["laptop"], 8)
    assert [claim.verdict for claim in Figure8().claims(data, "laptop")] == ["holds"] * 4


def test_the_opposite_picture_gets_the_opposite_verdicts():
    data = planted(lambda k: 0.002 * k, lambda k: 0.05 * k, DEPTHS["laptop"], 8)
    assert [claim.verdict for claim in Figure8().claims(data, "laptop")] == ["fails"] * 4


def test_the_published_curve_agrees_with_itself():
    published = origin()
    assert published.groupby("n_layers")["hops"].apply(list).to_dict() == {n: list(range(17)) for n in range(2, 7)}
    same = pd.concat(published.assign(attention="vanilla", seed=seed) for seed in range(3))
    data = pd.concat([same, same.assign(attention="KV shifting", error=same["error"] / 2)])
    agreement = Figure8().claims(data, "paper")[-1]
    assert agreement.estimate.value == 0
    assert agreement.verdict == "holds"


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
    data = planted(lambda k: 0.1 * k, lambda k: 0, (2, 3), 4).query("attention == 'vanilla' and hops > 0")
    hop_errors(axes, data, origin())
    solid = [line for line in axes.get_lines() if line.get_linestyle() == "-"]
    assert [line.get_label() for line in solid] == ["2 layers", "3 layers"]
    np.testing.assert_allclose(solid[0].get_xydata(), [[k, 0.1 * k + 0.001] for k in range(1, 5)])
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert [len(line.get_xdata()) for line in dotted] == [16, 16]
