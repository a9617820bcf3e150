"""Proofs: times of samples and proofs by checkpoint, on a model that is right by construction; verdicts on tables."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from figures.proofs import study as proofs
from figures.proofs.study import NONE, PROOFS, ROPE, STRIDE, measure
from ihlab import Transformer
from ihlab.recipes.labels import K_ONLY, VANILLA
from ihlab.theory.constructions import kv_shift_induction_head
from tests.figures.made_up import table, verdicts

RIGHT = kv_shift_induction_head(torch.eye(16), 16, sigma=0.05, slope=0.01, mask="strict")
STEPS = [0, 20, 40, 60, 80, 100, 120, 140]


def made_up_run(right: list[bool]) -> SimpleNamespace:
    """A run whose checkpoints are a random model or the construction of Theorem 3.3."""
    cell = {"variant": VANILLA, "setting": NONE, "width": 8}
    config = PROOFS.config(cell)
    wrong = Transformer(config.model, seed=0)
    models = {step: RIGHT if one else wrong for step, one in zip(STEPS, right, strict=True)}
    metrics = pd.DataFrame({"step": STEPS, "accuracy": np.where(right, 1.0, 0.2)})
    return SimpleNamespace(config=config, checkpoints=STEPS, metrics=metrics, model=lambda step: models[step].float())


@pytest.mark.parametrize(
    ("perfect", "proved", "expected"),
    [
        ("00111111", "00111111", {"steps_perfect": 40, "steps_proved": 40, "lost": 0, "proved": 1, "longest": 64}),
        ("01111111", "00011111", {"steps_perfect": 20, "steps_proved": 60, "lost": 0, "proved": 1}),
        ("11111111", "10000000", {"steps_perfect": 0, "steps_proved": 0, "lost": 1}),
        ("01001111", "01001111", {"steps_perfect": 20, "steps_proved": 20, "lost": 0}),
        ("00000000", "00000000", {"steps_perfect": np.inf, "steps_proved": np.inf, "lost": 0, "refuted": 1}),
    ],
    ids=["at once", "later", "lost", "imperfect samples are no loss", "never"],
)
def test_times_are_those_of_the_first_checkpoint_and_a_loss_needs_perfect_samples(
    perfect, proved, expected, monkeypatch
):
    run, tried = made_up_run([one == "1" for one in perfect]), []
    outcomes = {step: one == "1" for step, one in zip(STEPS, proved, strict=True)}
    opened = run.model
    run.model = lambda step: tried.append(step) or opened(step)
    monkeypatch.setattr(proofs, "is_proved", lambda model, task: outcomes[tried[-1]])
    found = measure(run)
    assert {name: found[name] for name in expected} == expected
    assert len(STEPS) > STRIDE  # or a loss would not be looked for


def test_verdicts_can_come_out_either_way():
    def judge(shifted, vanilla, rope, k_only):
        def of(cell):
            own = vanilla if cell["variant"] == VANILLA else shifted
            length = {"longest": rope} if cell["setting"] == ROPE else {}
            faster = {"steps_proved": own["steps_proved"] * k_only} if cell["variant"] == K_ONLY else {}
            return {"steps_perfect": 100, "perfect": 1, "margin": 1, **own, **length, **faster}

        data = table(PROOFS, of, seeds=12, noise=0)  # six seeds, as clusters, are too few for most fractions
        data["longest"] -= data["seed"] % 2 * (data["setting"] == ROPE)
        return verdicts(PROOFS, data)

    proof = {"steps_proved": 200, "lost": 1, "proved": 1, "refuted": 0, "longest": 64}
    none = {"steps_proved": 110, "lost": 0, "proved": 0, "refuted": 0, "longest": 16}
    refuted = {"steps_proved": np.inf, "lost": 0, "proved": 0, "refuted": 1, "longest": 2}
    good, bad = judge(proof, refuted, 20, 1.0), judge(none, none, 30, 1.4)
    fail_when_proved = {"perfect_not_proved", "longer.rope"}
    assert {id for id, verdict in good.items() if verdict != "holds"} == fail_when_proved
    holds_without_proof = {id for id, verdict in bad.items() if verdict == "holds"}
    assert holds_without_proof == {"perfect_not_proved"}
