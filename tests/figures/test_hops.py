"""Figure 8 and two questions about it: errors counted slowly, and verdicts on planted errors."""

import numpy as np
import pandas as pd
import pytest
import torch

from figures.hops.study import FIGURE8, SAVED_LAYER, origin
from ihlab.measure.batches import EVAL_SEED
from ihlab.recipes.hop_horizon import Cell, hop_horizon, hop_measures
from ihlab.recipes.labels import KV, VANILLA
from ihlab.study.claim import NOT_TESTED, judged

H, F, U, N = "holds", "fails", "undecided", NOT_TESTED


def planted(cells, error, hops=8):
    """Return the table of models whose error at k hops is `error(cell, seed, k)`."""
    rows = []
    for cell in cells:
        for seed in range(5):
            errors = [float(error(cell, seed, k)) for k in range(hops + 1)]
            horizon = dict(zip(("hops", "log2_hops"), hop_horizon(errors[1:]), strict=True))
            rows.append(
                {
                    **cell._asdict(),
                    "seed": seed,
                    **{f"error_{k}": e for k, e in enumerate(errors)},
                    **horizon,
                }
            )
    return pd.DataFrame(rows)


def verdicts(study, data, scale="laptop"):
    return [claim.verdict for claim in judged(study.claims(data, scale))]


# Figure 8


@pytest.fixture(scope="module")
def made(smoke):
    return smoke("figure8")


@pytest.mark.slow
def test_errors_are_wrong_letters_counted_one_by_one(trained):
    run = trained("figure8")[0][1]
    model, task = run.model(), run.config.task
    counted = []
    for k in range(task.max_hops + 1):
        rows = task.batch_of(k, 100, np.random.default_rng(EVAL_SEED))
        guesses = model(torch.from_numpy(rows.inputs.copy())).argmax(dim=-1)
        asked = [
            (r, t)
            for r, t in np.ndindex(rows.targets.shape)
            if rows.targets[r, t] < task.none and t > 0
        ]
        wrong = sum(int(guesses[r, t]) != rows.targets[r, t] for r, t in asked)
        counted.append(wrong / len(asked))
    measured = hop_measures(run)
    assert [measured[f"error_{k}"] for k in range(len(counted))] == pytest.approx(counted)


def errors(vanilla, shifted, scale="laptop", noise=0.001):
    """Errors that grow with k: `vanilla` and `shifted` map k to an error, seeds lie apart by
    `noise` and more.
    """
    study = FIGURE8.at_scale(scale)
    cells = [Cell(**cell) for cell in study.cells]

    def error(cell, seed, k):
        return (vanilla if cell.attention == VANILLA else shifted)(k) + noise * seed * (1 + k / 8)

    return planted(cells, error, study.config(study.cells[0]).task.max_hops)


def steep(least):
    """No error up to `least` hops, and a tenth more for each beyond."""
    return lambda k: 0.1 * max(k - least, 0)


def gentle(k):
    return 0.002 * k


@pytest.mark.parametrize("scale", ["laptop", "gpu", "paper"])
def test_sentences_about_five_layers_are_tested_where_there_are_five_and_the_sequences_have_the_hops(
    scale,
):
    claims = FIGURE8.claims(errors(steep(8), gentle, scale), scale)
    named = [claim for claim in claims if claim.sentence.endswith("(L = 5).")]
    assert len(named) == 2
    study = FIGURE8.at_scale(scale)
    layers, hops = (
        max(cell["n_layers"] for cell in study.cells),
        study.config(study.cells[0]).task.max_hops,
    )
    large = layers >= 5 and hops >= 16
    assert [claim.verdict for claim in named] == (["holds"] * 2 if large else [NOT_TESTED] * 2)
    assert large == (scale in ("gpu", "paper"))
    for claim in named:
        assert (
            claim.why.startswith(
                f"The models have {layers} layers and sequences at most {hops} hops"
            )
            != large
        )


@pytest.mark.parametrize(
    ("shift", "spread", "verdict"), [(0.01, 0.001, H), (0.2, 0.001, F), (0.055, 0.02, U)]
)
def test_the_published_curve_agrees_with_what_is_near_it(shift, spread, verdict):
    """Five seeds of vanilla about the published errors, and half of them for KV shifting."""
    every = origin()
    assert every.groupby("n_layers")["hops"].apply(list).to_dict() == {
        n: list(range(17)) for n in range(2, 7)
    }
    published = every.set_index(["n_layers", "hops"])["error"]

    def error(cell, seed, k):
        near = published[cell.n_layers, k] + shift + spread * (seed - 2)
        return near if cell.attention == VANILLA else near / 2

    data = planted([Cell(label, n) for label in (VANILLA, KV) for n in range(2, 7)], error, hops=16)
    agreement = judged(FIGURE8.claims(data, "paper"))[-1]
    assert agreement.sentence == "Our vanilla reproduces the original's."
    assert agreement.estimate.value == pytest.approx(shift)
    assert agreement.verdict == verdict


# One layer more or less


def crossing(hops):
    """Errors that cross .1 at so many hops (a number for each cell), a little apart in each seed."""
    at = dict(zip([Cell(**cell) for cell in SAVED_LAYER.cells], hops, strict=True))

    def error(cell, seed, k):
        edge = at[cell] * 2 ** (0.03 * (seed - 2))
        return np.clip(0.1 + 0.5 * (np.log2(max(k, 0.5)) - np.log2(edge)), 0, 1)

    return planted(at, error)


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ((7.0, 3.2, 7.0), [H, N]),  # by hand
        ((4.4, 2.2, 4.4), [H, N]),  # pointers alone
        ((3.2, 3.2, 7.0), [F, N]),  # the shift does nothing
        ((5.3, 3.2, 5.5), [U, N]),  # .73 of a doubling, to be told from .7
    ],
)
def test_whether_the_shift_saves_a_layer(hops, expected):
    data = crossing(hops)
    assert verdicts(SAVED_LAYER, data) == expected
    first = [
        claim.first.verdict for claim in judged(SAVED_LAYER.claims(data, "laptop")) if claim.first
    ]
    assert first == [H], (
        "as declared, no horizon that sequences of 8 hops can show is more than a layer"
    )
