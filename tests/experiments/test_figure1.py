"""Figures 1a and 1b: the runs they plan, and verdicts on made-up tables whose truth is known."""

import numpy as np
import pandas as pd
import pytest

from ihlab.experiments import figure1a, figure1b
from ihlab.experiments.experiment import SCALES
from ihlab.experiments.figure1 import base, guessing_accuracy
from tasks import InductionTask


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("experiment", [figure1a.Figure1a(), figure1b.Figure1b()], ids=lambda e: e.name)
def test_curves_differ_in_the_model_only(experiment, scale):
    planned = experiment.runs(scale)
    assert len({plan.config.digest for plan in planned}) == len(planned)
    shared = {plan.config.but(name="x", seed=0, model=planned[0].config.model).digest for plan in planned}
    assert len(shared) == 1
    seeds = {plan.curve: set() for plan in planned}
    for plan in planned:
        seeds[plan.curve].add(plan.config.seed)
    assert len({frozenset(s) for s in seeds.values()}) == 1
    assert scale == "smoke" or len(next(iter(seeds.values()))) >= 3


def test_paper_scale_is_the_papers():
    """Section 3.2, Appendices K and N."""
    run = base("paper")
    assert (run.task.vocab_size, run.task.length, run.batch_size) == (8000, 512, 8 * 512)
    assert (run.lr, run.warmup, run.schedule, run.betas) == (2e-4, 1000, "constant", (0.9, 0.95))
    model = run.model
    per_layer = 4 * model.d_model**2 + 3 * model.d_model * model.d_mlp
    assert model.d_model == 1024
    assert per_layer == pytest.approx(20e6, rel=0.1)


def test_guessing_accuracy_of_a_tiny_task_by_enumeration():
    """Two positions: the first can only be repeated at once, and then the row holds one token to guess."""
    assert guessing_accuracy(InductionTask(vocab_size=13, length=2)) == 1.0


def table(curves: dict[str, tuple[float, float]], n_params: dict[str, int], seeds: int = 5) -> pd.DataFrame:
    """Made-up learning: each curve jumps from 0.1 to its final accuracy at its own step."""
    rng = np.random.default_rng(0)
    rows = []
    for curve, (jump, final) in curves.items():
        for seed in range(seeds):
            at = jump * (1 + 0.02 * rng.standard_normal())
            for step in range(0, 1001, 10):
                accuracy = final + 0.0005 * rng.standard_normal() if step >= at else 0.1
                rows.append((curve, 32, n_params[curve], seed, step, step * 64, 1.0, 1.0, accuracy, accuracy))
    names = "curve d_model n_params seed step tokens train_loss eval_loss accuracy accuracy_first"
    return pd.DataFrame(rows, columns=names.split())


def test_figure1a_says_yes_where_the_paper_is_right_and_no_where_it_is_not():
    names = (figure1a.KV1, figure1a.V1, figure1a.V2, figure1a.V4)
    params = dict.fromkeys(names, 1000)
    right = dict(zip(names, [(200, 0.998), (1e9, 0.1), (600, 0.997), (800, 0.997)], strict=True))
    wrong = dict(zip(names, [(600, 0.95), (100, 0.9), (200, 0.97), (100, 0.997)], strict=True))
    for curves, verdict in ((right, "holds"), (wrong, "fails")):
        claims = figure1a.Figure1a().claims(table(curves, params), "laptop")
        assert [claim.verdict for claim in claims] == [verdict] * 5, [c.to_dict() for c in claims]


def test_figure1a_counts_runs_that_never_learn():
    names = (figure1a.KV1, figure1a.V1, figure1a.V2, figure1a.V4)
    curves = dict(zip(names, [(200, 0.998), (1e9, 0.1), (1e9, 0.1), (1e9, 0.1)], strict=True))
    claims = {c.measure: c for c in figure1a.Figure1a().claims(table(curves, dict.fromkeys(names, 1)), "laptop")}
    assert claims["steps to 90% accuracy, KV shifting 1 layer / vanilla 2 layers"].verdict == "holds"
    assert claims["steps to 90% accuracy, vanilla 4 layers / vanilla 2 layers"].verdict == "undecided"


def test_figure1b_says_yes_where_the_paper_is_right_and_no_where_it_is_not():
    def curves(kv_8: float, vanilla_8: float, vanilla_32: float) -> dict[str, tuple[float, float]]:
        made = {}
        for width in figure1b.WIDTHS:
            made[figure1b.kv(width)] = (100, kv_8)
            made[figure1b.vanilla(width)] = (100, {8: vanilla_8, 16: 0.5, 32: vanilla_32}[width])
        return made

    for made, ratio, verdict in ((curves(0.95, 0.05, 0.9), 2, "holds"), (curves(0.2, 0.9, 0.3), 1, "fails")):
        params = {name: 1000 * (ratio if name.startswith("vanilla") else 1) for name in made}
        claims = figure1b.Figure1b().claims(table(made, params), "laptop")
        assert [claim.verdict for claim in claims] == [verdict] * 3, [c.to_dict() for c in claims]
