"""Figure 8 and its four questions: errors counted slowly, verdicts on planted errors that follow each law and none."""

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab.claims.claim import NOT_TESTED, judged
from ihlab.claims.experiment import SCALES
from ihlab.claims.hop_horizon import Cell, hop_horizons, hop_table
from ihlab.claims.labels import K_ONLY, KV, V_ONLY, VANILLA
from ihlab.measure.batches import EVAL_SEED
from ihlab.studies.hops import (
    FIGURE8_LAW,
    FIGURE8_LEARNED,
    LAW_HOPS,
    LAW_STEPS,
    LONG,
    ONE_MORE_LAYER,
    SAVED_LAYER,
    SHIFT_HALVES,
    SIZES,
    Figure8,
    L,
    origin,
)

H, F, U, N = "holds", "fails", "undecided", NOT_TESTED


def planted(cells, error, seeds=8, hops=8):
    """Return the table of models whose error at k hops is `error(cell, seed, k)`."""
    k = np.arange(hops + 1)
    models = [
        pd.DataFrame({**cell._asdict(), "seed": seed, "hops": k, "error": [error(cell, seed, n) for n in k]})
        for cell in cells
        for seed in range(seeds)
    ]
    return pd.concat(models, ignore_index=True)


def models(study, scale="laptop"):
    return [Cell(**cell) for cell in (study.smoke if scale == "smoke" else study.cells)]


def verdicts(study, data, scale="laptop"):
    return [claim.verdict for claim in judged(study.claims(data, scale))]


# Figure 8


@pytest.fixture(scope="module")
def made(smoke):
    return smoke("figure8")


@pytest.mark.slow
def test_the_table_has_an_error_for_every_run_and_hop(made):
    data = made[1].data()
    assert data.groupby(["attention", "n_layers", "seed"])["hops"].apply(list).tolist() == [[0, 1, 2]] * 4
    assert data["error"].between(0, 1).all()
    assert list(data.columns) == list(errors(gentle, gentle).columns), "as in the planted tables"
    assert [c.to_dict() for c in judged(Figure8().claims(data, "smoke"))] == made[1].claims()


@pytest.mark.slow
def test_errors_are_wrong_letters_counted_one_by_one(trained):
    run = trained("figure8")[0][1]
    model, task = run.model(), run.config.task
    counted = []
    for k in range(task.max_hops + 1):
        rows = task.batch_of(k, 100, np.random.default_rng(EVAL_SEED))
        guesses = model(torch.from_numpy(rows.inputs.copy())).argmax(dim=-1)
        asked = [(r, t) for r, t in np.ndindex(rows.targets.shape) if rows.targets[r, t] < task.none and t > 0]
        wrong = sum(int(guesses[r, t]) != rows.targets[r, t] for r, t in asked)
        counted.append(wrong / len(asked))
    assert hop_table(run)["error"].tolist() == pytest.approx(counted)


def errors(vanilla, shifted, scale="laptop", noise=0.001):
    """Errors that grow with k: `vanilla` and `shifted` map k to an error, seeds lie apart by `noise` and more."""
    cells = [Cell(label, layers) for label in (VANILLA, KV) for layers in SIZES[scale].layers]

    def error(cell, seed, k):
        return (vanilla if cell.attention == VANILLA else shifted)(k) + noise * seed * (1 + k / 8)

    return planted(cells, error, 5, SIZES[scale].task.max_hops)


def steep(least):
    """No error up to `least` hops, and a tenth more for each beyond."""
    return lambda k: 0.1 * max(k - least, 0)


def gentle(k):
    return 0.002 * k


@pytest.mark.parametrize(
    ("vanilla", "shifted", "noise", "better", "degrades", "reaches"),
    [
        (steep(2), gentle, 0.001, H, H, H),  # the paper's picture: vanilla degrades beyond 2 hops, KV reaches 4
        (gentle, steep(2), 0.001, F, F, F),
        (gentle, gentle, 0.001, U, F, H),  # the same errors show no bias for multi-hop, small ones no degradation
        (lambda k: 0.05 * k / 4 + 0.05 * (k == 4), lambda k: 0.05 * k / 4, 0.05, U, U, U),  # noise decides nothing
    ],
)
def test_figure8_is_judged_by_its_errors(vanilla, shifted, noise, better, degrades, reaches):
    data = errors(vanilla, shifted, noise=noise)
    assert verdicts(Figure8(), data) == [better, better, N, N, degrades, reaches]
    assert verdicts(FIGURE8_LEARNED, data) == [better, better, degrades, reaches]
    assert not any(claim.of_paper for claim in FIGURE8_LEARNED.claims(data, "laptop"))


@pytest.mark.parametrize("scale", SCALES)
def test_sentences_about_five_layers_are_tested_where_there_are_five_and_the_sequences_have_the_hops(scale):
    claims = Figure8().claims(errors(steep(8), gentle, scale), scale)
    named = [claim for claim in claims if claim.sentence.endswith("(L = 5).")]
    assert len(named) == 2
    layers, hops = max(SIZES[scale].layers), SIZES[scale].task.max_hops
    large = layers >= 5 and hops >= 16
    assert [claim.verdict for claim in named] == (["holds"] * 2 if large else [NOT_TESTED] * 2)
    assert large == (scale in ("gpu", "paper"))
    for claim in named:
        assert claim.why.startswith(f"The models have {layers} layers and sequences at most {hops} hops") != large


@pytest.mark.parametrize(("shift", "spread", "verdict"), [(0.01, 0.001, H), (0.2, 0.001, F), (0.055, 0.02, U)])
def test_the_published_curve_agrees_with_what_is_near_it(shift, spread, verdict):
    """Five seeds of vanilla about the published errors, and half of them for KV shifting."""
    every = origin()
    assert every.groupby("n_layers")["hops"].apply(list).to_dict() == {n: list(range(17)) for n in range(2, 7)}
    seeds = range(5)
    vanilla = pd.concat(
        every.assign(attention=VANILLA, seed=seed, error=every["error"] + shift + spread * (seed - 2)) for seed in seeds
    )
    data = pd.concat([vanilla, vanilla.assign(attention=KV, error=vanilla["error"] / 2)])
    agreement = judged(Figure8().claims(data, "paper"))[-1]
    assert agreement.sentence == "Our vanilla reproduces the original's."
    assert agreement.estimate.value == pytest.approx(shift)
    assert agreement.verdict == verdict


def test_published_vanilla_models_go_beyond_a_layer_for_the_token_before():
    """With 2 and 3 layers as far as the longer construction, with 4 and 5 between the two."""
    table = hop_horizons(origin().assign(attention=VANILLA, seed=0)).set_index("n_layers")
    assert (2 ** table["log2_hops"]).round(1).tolist() == [1.6, 3.5, 6.8, 9.9, 16.0]
    assert table["bound"].tolist() == ["", "", "", "", "above"]
    assert all(2**log2 > Cell(VANILLA, n).by_pointers() for n, log2 in table["log2_hops"].items() if n < 6)
    assert table["hops"].to_dict() == {2: 1, 3: 3, 4: 6, 5: 9, 6: 16}


# The law


def following(hops):
    """Errors of .01 up to `hops(cell, seed)` and .5 beyond, in every cell of the law."""
    return planted(
        models(FIGURE8_LAW), lambda cell, seed, k: 0.01 if k <= hops(cell, seed) else 0.5, hops=LAW_HOPS["laptop"]
    )


@pytest.mark.parametrize(
    ("hops", "verdict"),
    [
        (lambda cell, seed: cell.by_pointers(), H),
        (lambda cell, seed: cell.by_hand(), F),
        (lambda cell, seed: cell.by_pointers() + 1, F),
        (lambda cell, seed: cell.by_pointers() + seed % 2, U),
    ],
)
def test_the_law_is_judged_by_how_many_models_follow_it_exactly(hops, verdict):
    data = following(hops)
    assert verdicts(FIGURE8_LAW, data) == [verdict]
    first = FIGURE8_LAW.claims(data, "laptop")[0].measure
    assert "exactly 2 (KV shifting with 2 layers) and 4 (KV shifting with 3 layers) hops" in first


# One layer more or less


def crossing(study, hops, seeds=8, apart=0.02):
    """Errors that cross .1 at so many hops (a number for each cell), a little apart in each seed."""
    at = dict(zip(models(study), hops, strict=True))

    def error(cell, seed, k):
        edge = at[cell] * 2 ** (apart * (seed - (seeds - 1) / 2))
        return np.clip(0.1 + 0.5 * (np.log2(max(k, 0.5)) - np.log2(edge)), 0, 1)

    return planted(at, error, seeds)


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ((7.0, 3.2, 7.0), [H, H, N, H, H, H, N, H, U]),  # by hand: 7 is not beyond 7
        ((4.4, 2.2, 4.4), [H, H, N, H, H, H, N, F, F]),  # pointers alone
        ((3.2, 3.2, 7.0), [U, F, N, F, H, H, N, F, F]),  # the shift does nothing; equality is no more
        ((5.3, 3.2, 5.5), [H, U, N, H, H, U, N, H, F]),  # .73 and .78 of a doubling, to be told from .7
        ((7.5, 3.2, 4.0), [H, H, N, H, F, F, N, H, H]),  # it is worth more than a vanilla layer
    ],
)
def test_whether_the_shift_saves_a_layer(hops, expected):
    data = crossing(SAVED_LAYER, hops, seeds=5, apart=0.03)
    assert verdicts(SAVED_LAYER, data) == expected
    first = [claim.first.verdict for claim in judged(SAVED_LAYER.claims(data, "laptop")) if claim.first]
    assert first == [H, H], "as declared, no horizon that sequences of 8 hops can show is more than a layer"


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ((7.5, 3.5), [H]),  # both as by hand
        ((4.5, 3.5), [H]),  # pointers alone, but for the values
        ((3.5, 3.5), [U]),  # keys are worth nothing; equality is no more
        ((3.5, 4.5), [F]),  # values are worth something
    ],
)
def test_which_half_of_the_shift(hops, expected):
    assert verdicts(SHIFT_HALVES, crossing(SHIFT_HALVES, hops)) == expected


def test_one_model_that_stands_still_does_not_hide_the_difference():
    """As one of five models of both halves did, at the three hops of vanilla; their mean would be undecided."""
    data = crossing(SHIFT_HALVES, (7.0, 3.2))
    stuck = (data["attention"] == K_ONLY) & (data["seed"] == 0)
    data.loc[stuck, "error"] = data.loc[(data["attention"] == V_ONLY) & (data["seed"] == 0), "error"].to_numpy()
    [halves] = judged(SHIFT_HALVES.claims(data, "laptop"))
    assert halves.verdict == H
    assert "7 of 8 and 0 of 8; p = 0.0014 by Fisher's exact test" in halves.measure


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        ((15.0, 7.5, 7.5, 8.9, 7.5), [H, H, H, H]),  # by hand: only that it is more is seen
        ((8.9, 4.5, 4.5, 8.9, 7.5), [H, H, H, H]),  # pointers alone
        ((4.5, 4.5, 7.5, 8.9, 7.5), [F, U, H, H]),  # a layer more teaches nothing; equality is no more
        ((4.5, 7.5, 4.5, 8.9, 7.5), [U, F, H, H]),  # it is too deep to be trained
        ((15.0, 15.0, 15.0, 8.9, 7.5), [U, U, H, H]),  # all follow what there is: nothing is told apart
        ((8.9, 4.5, 4.5, 7.5, 4.5), [H, H, H, U]),  # the keys follow more, but not beyond vanilla by hand
        ((8.9, 4.5, 4.5, 7.5, 7.5), [H, H, U, U]),
        ((8.9, 4.5, 4.5, 4.5, 8.9), [H, H, F, F]),
    ],
)
def test_one_layer_more(hops, expected):
    assert verdicts(ONE_MORE_LAYER, crossing(ONE_MORE_LAYER, hops)) == expected


def test_five_models_of_either_half_can_decide():
    data = crossing(ONE_MORE_LAYER, (8.9, 4.5, 4.5, 8.9, 7.5))
    five = data[~data["attention"].isin((K_ONLY, V_ONLY)) | (data["seed"] < 5)]
    claims = judged(ONE_MORE_LAYER.claims(five, "laptop"))
    assert [claim.verdict for claim in claims][2:] == [H, H]
    assert [claim.seeds for claim in claims] == [8, 8, 5, 5]
    assert "(5 of 5 and 0 of 5; p = 0.0079 by Fisher's exact test)" in claims[3].measure


# Runs and pictures


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
def test_sequences_have_more_hops_than_any_model_is_to_follow(scale):
    law, saved = ([plan.config for plan in study.runs(scale)] for study in (FIGURE8_LAW, SAVED_LAYER))
    most = max(cell.by_pointers() for cell in models(FIGURE8_LAW, scale))
    assert {run.task.max_hops for run in law} == {most + 1}
    assert {run.task.max_hops for run in saved} == {cell.by_hand() + 1 for cell in models(SAVED_LAYER, scale)[::2]}
    if scale == "laptop":
        assert all(run.steps == LAW_STEPS[run.model.n_layers] for run in law)


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
def test_the_other_experiments_train_as_saved_layer_does(scale):
    saved, halves, more = (
        [plan.config for plan in study.runs(scale)] for study in (SAVED_LAYER, SHIFT_HALVES, ONE_MORE_LAYER)
    )
    [both] = {
        run.replace(name="same", seed=0, model=run.model.replace(attention="vanilla", n_layers=1))
        for run in [*saved, *halves, *more]
    }
    assert both.task.max_hops == 2 ** L[scale]
    assert both.steps == (LONG if scale == "laptop" else 20)
    assert {run.model.attention for run in halves} == {"k_shift", "v_shift"}
    assert {run.model.n_layers for run in halves} == {L[scale]}
    known = {run.digest for run in saved}
    new = [run for run in more if run.digest not in known]
    assert [run.model.attention for run in new].count("kv_shift") == (8 if scale == "laptop" else 2)
    assert {run.model.attention for run in new} == {"kv_shift", "k_shift", "v_shift"}
    assert {run.model.n_layers for run in new} == {L[scale] + 1}
