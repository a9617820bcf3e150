"""The study of toys and text: what a speed is, what is planned, and what it costs to take taps away."""

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab.claims.labels import K_ONLY, VANILLA
from ihlab.claims.token_shifts import CONV_ALL, CONV_K, CONV_M, MULTI, VARIANTS
from ihlab.claims.toy_settings import INDUCTION1
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.measure.text import bits_per_byte, token_losses
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from ihlab.studies.shifts import SHIFTS as STUDY_OF_SHIFTS
from ihlab.studies.toy_and_text import (
    PUBLISHED,
    SHIFTS,
    TEXT,
    TOY_AND_TEXT,
    bits,
    lower_median,
    speeds,
    text_columns,
    tied,
)
from tasks import TextTask
from tasks.text.corpus import SAMPLE
from tests.comparisons import AROUND, NEVER, cell

ROWS = 8
TASK = TextTask(corpus=SAMPLE, vocab_size=300, length=16)


def test_runs_of_the_toys_are_those_of_the_study_of_token_shifts():
    ours, theirs = (
        {plan.curve: plan.config.digest for plan in study.runs("laptop")} for study in (TOY_AND_TEXT, STUDY_OF_SHIFTS)
    )
    shared = ours.keys() & theirs.keys()
    assert len(shared) > 40
    assert all(ours[curve] == theirs[curve] for curve in shared)


def test_the_published_models_are_all_trained_and_shifts_are_variants():
    assert set(SHIFTS) <= set(VARIANTS) - {MULTI, VANILLA}
    for setting in (TEXT, INDUCTION1):
        models = [TOY_AND_TEXT.config({"variant": each, "setting": setting}, "laptop").model for each in PUBLISHED]
        assert len(set(models)) == len(PUBLISHED)


def test_speeds_of_learners_are_above_those_of_others():
    table = pd.concat(
        [
            cell(VANILLA, INDUCTION1, NEVER, 0.2),
            cell(K_ONLY, INDUCTION1, AROUND),
            cell(CONV_K, INDUCTION1, np.where(np.arange(8) < 5, 999.0, np.inf), 1.0),
            cell(CONV_M, INDUCTION1, np.where(np.arange(8) < 4, 10.0, np.inf), 0.7),
        ]
    )
    found = speeds(table, INDUCTION1, (VANILLA, K_ONLY, CONV_K, CONV_M))
    assert found.shape == (4, 8)
    vanilla, k_only, conv_k, conv_m = lower_median(found)
    assert vanilla == 0.2
    assert k_only == pytest.approx(2 - 101 / 1000)
    assert conv_k == pytest.approx(1.001)  # five of eight seeds: learned
    assert conv_m == 0.7  # four of eight: not
    assert np.argsort(tied(found)).tolist()[-2:] == [2, 1]
    assert tied(found)[0] == tied(found)[3]


def test_bits_are_by_variant_and_seed():
    data = pd.DataFrame(
        {"kind": "run", "variant": [CONV_K] * 2 + [VANILLA] * 2, "setting": TEXT, "lr": 0.1, "seed": [1, 0, 0, 1],
         "bits_per_byte": [4.0, 3.0, 1.0, 2.0]}
    )  # fmt: skip
    assert bits(data, (VANILLA, CONV_K)).tolist() == [[1, 2], [3, 4]]


def model(**fields):
    return Transformer(
        ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=TASK.vocab_size, n_ctx=TASK.length, **fields), seed=0
    )


def cost(of):
    """The bits per byte of the quarter of the sequences on which taps are taken away."""
    batch = draw(TASK, EVAL_SEED, "eval", 2, ROWS)
    inputs, targets = batch.inputs[: ROWS // 4], batch.targets[: ROWS // 4]
    return bits_per_byte(token_losses(of, inputs, targets), TASK.n_bytes(targets))


def test_a_lost_tap_costs_what_the_model_without_it_costs_and_is_put_back():
    whole = model(canon="KVOM")
    found, kept = text_columns(whole, TASK, ROWS), {name: p.clone() for name, p in whole.named_parameters()}
    assert all(torch.equal(p, kept[name]) for name, p in whole.named_parameters())
    assert found["bits_eligible"] <= found["bits_per_byte"]
    assert {f"lost_{place}{layer}" for place in "KVOM" for layer in (1, 2)} < found.keys()
    without = {
        "lost_M1": "blocks.0.canon.M.weight", "lost_O2": "blocks.1.canon.O.weight",
        "lost_K2": "blocks.1.attn.convolution.key.weight",
    }  # fmt: skip
    for column, name in without.items():
        one = model(canon="KVOM")
        with torch.no_grad():
            one.get_parameter(name)[:, 1] = 0
        assert found[column] == pytest.approx(cost(one) - cost(whole), abs=1e-6)


def test_what_only_the_next_layers_attention_reads_is_lost_through_it_alone():
    """If layer 2 attends uniformly, whatever its queries and keys are, only its values can read the first layer."""
    uniform = model(canon="M")
    with torch.no_grad():
        uniform.blocks[1].attn.q_proj.weight.zero_()
    found = text_columns(uniform, TASK, ROWS)
    assert found["lost_M1_q"] == pytest.approx(0, abs=1e-6)
    assert found["lost_M1_k"] == pytest.approx(0, abs=1e-6)
    assert abs(found["lost_M1_v"]) > 1e-5
    assert "lost_M2_k" not in found


def test_claims_and_the_picture_come_from_a_table_of_any_outcome():
    data = made_up()
    verdicts = {claim.id: claim.verdict for claim in TOY_AND_TEXT.claims(data, "laptop")}
    assert verdicts["published_order.text_2_layers"] == "holds"
    assert verdicts["conv_mlp_out_below_conv_k"] == "holds"
    assert verdicts["published_order.2_hops_2_layers"] == "undecided"
    assert verdicts["conv_mlp_out_read_by_keys"] == "fails"
    order = [label.get_text() for label in TOY_AND_TEXT.draw(data, "laptop").axes[0].get_yticklabels()]
    assert order[0] == CONV_ALL


def made_up():
    """Text in the published order, toys that nothing learns and where all are as accurate."""
    rng, rows = np.random.default_rng(0), []
    cells = [tuple(each.values()) for each in TOY_AND_TEXT.cells]
    for number, variant in enumerate(dict(cells)):
        saved = PUBLISHED.get(variant, 1 + number / 1000)
        for seed in range(3):
            noise = rng.normal(scale=1e-3)
            rows.append(
                {"kind": "run", "variant": variant, "setting": TEXT, "lr": 1e-2, "seed": seed,
                 "bits_per_byte": 3 - saved + noise, "bits_eligible": 1 - saved / 2 + noise, "lost_M1": 1 + noise,
                 "lost_M1_k": 0.1 + noise, "lost_O1": 1 + noise, "lost_O1_k": 0.1 + noise}
            )  # fmt: skip
    toys = [cell(variant, toy, NEVER, 0.2) for variant, toy in cells if toy != TEXT]
    return pd.concat([*toys, pd.DataFrame(rows)], ignore_index=True)
