"""Figures 1a and 1b: the runs they plan, and verdicts on made-up tables whose truth is known."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch

from figures.figure1.study import (
    FIGURE1A,
    FIGURE1A_LEARNED,
    FIGURE1B,
    NEAR_CHANCE,
    PAPER,
    in_row,
)
from ihlab import ModelConfig, RunConfig, train
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.recipes.induction import KV1, V1, V2, V4, guessing_accuracy
from ihlab.study.claim import judged
from ihlab.study.study import Study
from tasks import IGNORE, InductionTask

pytestmark = pytest.mark.slow


def test_paper_scale_is_the_papers():
    """Section 3.2, Appendices K and N."""
    run = PAPER
    assert (run.task.vocab_size, run.task.length, run.batch_size) == (8000, 512, 8 * 512)
    assert (run.lr, run.warmup, run.schedule, run.betas) == (2e-4, 1000, "constant", (0.9, 0.95))
    model = run.model
    per_layer = 4 * model.d_model**2 + 3 * model.d_model * model.d_mlp
    assert model.d_model == 1024
    assert per_layer == pytest.approx(20e6, rel=0.1)
    assert {plan.config.lr for plan in FIGURE1B.runs("paper")} == {2e-4}


# What a model reaches that answers with some token of the row


def guesses_by_enumeration(length: int) -> float:
    """1 / (other tokens so far) at the first scored repeat, over all ways to draw a row, as the task states them.

    A walk through the rule, written for itself: members of a pool of `length` are drawn uniformly; a repeat that is
    not immediate, and whose earlier occurrences had one follower, is scored and followed by it; rows without are drawn
    again.
    """
    found: dict[Fraction, Fraction] = {}

    def walk(row: tuple[int, ...], weight: Fraction) -> None:
        if len(row) >= length:
            return
        for member in range(length):
            after = {row[i + 1] for i in range(len(row) - 1) if row[i] == member}
            grown = (*row, member)
            if member in row and row[-1] != member and len(after) == 1:
                share = Fraction(1, len(set(row)) - 1)
                found[share] = found.get(share, Fraction(0)) + weight / length
            else:
                walk(grown, weight / length)

    walk((), Fraction(1))
    return float(sum(share * weight for share, weight in found.items()) / sum(found.values()))


@pytest.mark.parametrize("length", [4, 6])
def test_guessing_accuracy_of_short_rows_by_enumeration(length):
    """From 4096 rows, a mean of shares between 1 / length and 1 is known to .02, four standard errors."""
    guess = guessing_accuracy(InductionTask(vocab_size=11 + length, length=length))
    assert guess == pytest.approx(guesses_by_enumeration(length), abs=0.02)


def test_answers_that_are_tokens_of_the_row_counted_one_by_one(tmp_path):
    task = InductionTask(vocab_size=24, length=12)
    model = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=24, n_ctx=12, attention="kv_shift")
    run = train(RunConfig(task=task, model=model, steps=40, batch_size=16, lr=1e-2, warmup=0, eval_rows=60), tmp_path)
    batch = draw(task, EVAL_SEED, "eval", 0, 60)
    logits = run.model()(torch.from_numpy(batch.inputs.copy())).detach()
    inside = 0
    for row in range(60):
        first = next(t for t in range(12) if batch.answers[row, t] != IGNORE)
        inside += int(logits[row, first].argmax()) in batch.inputs[row, : first + 1].tolist()
    assert in_row(run) == pytest.approx(inside / 60, abs=1e-6)
    assert 0 < inside < 60


# Verdicts


SEEDS, HORIZON, ROWS, GUESS = 8, 800, 1024, 0.12
Ends = Sequence[tuple[float, float]]
"""The step at which each seed jumps to its final accuracy, and this accuracy."""


def runs(curve: str, ends: Ends) -> pd.DataFrame:
    """A table of runs."""
    rows = [
        {"curve": curve, "lr": 8e-3, "seed": seed, "horizon": HORIZON, "rows": ROWS, "guess": GUESS, "final": final}
        | {"steps_to_90": jump if final >= 0.9 and jump <= HORIZON else math.inf}
        for seed, (jump, final) in enumerate(ends)
    ]
    return pd.DataFrame(rows)


def seeds_at(jump: float, final: float, spread: float = 0.02, of: int = SEEDS, apart: float = 0.0005) -> Ends:
    """Seeds about a jump (a factor of 1 +- spread) and about a final accuracy."""
    rng = np.random.default_rng(0)
    jumps, finals = jump * (1 + spread * rng.standard_normal(of)), final + apart * rng.standard_normal(of)
    return list(zip(jumps.tolist(), np.clip(finals, 0, 1).tolist(), strict=True))


def figure1a_table(curves: dict[str, Ends]) -> pd.DataFrame:
    return pd.concat([runs(curve, ends) for curve, ends in curves.items()], ignore_index=True)


def verdicts(experiment: Study, data: pd.DataFrame, scale: str = "laptop") -> list[str]:
    return [claim.verdict for claim in judged(experiment.claims(data, scale))]


NEVER = 1e9
RIGHT = {KV1: seeds_at(200, 0.998), V1: seeds_at(NEVER, 0.1), V2: seeds_at(600, 0.998), V4: seeds_at(700, 0.998)}
WRONG = {KV1: seeds_at(600, 0.95), V1: seeds_at(100, 0.9), V2: seeds_at(200, 0.97), V4: seeds_at(100, 0.997)}
OPEN = {
    KV1: seeds_at(200, 0.99, spread=0.5, apart=0.004),
    V1: seeds_at(0, GUESS + NEAR_CHANCE, apart=0.06),
    V2: seeds_at(400, 0.99, spread=0.5, apart=0.004),
    V4: seeds_at(320, 0.998, spread=0.5),
}


@pytest.mark.parametrize(
    ("curves", "verdict"), [(RIGHT, "holds"), (WRONG, "fails"), (OPEN, "undecided")], ids=["right", "wrong", "open"]
)
def test_every_claim_of_figure_1a_can_come_out_each_way(curves, verdict):
    data = figure1a_table(curves)
    for figure in (FIGURE1A, FIGURE1A_LEARNED):
        assert verdicts(figure, data) == [verdict] * 5, [c.to_dict() for c in figure.claims(data, "laptop")]
        assert {claim.of_paper for claim in figure.claims(data, "laptop")} == {figure is FIGURE1A}
