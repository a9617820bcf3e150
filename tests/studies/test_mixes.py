"""The study of mixes: what is planned, and verdicts on planted gains."""

import numpy as np
import pandas as pd
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.experiment import SCALES, Experiment
from ihlab.claims.labels import K_ONLY, V_ONLY, VANILLA
from ihlab.studies.mixes import MIXES, OFFSET, RATES, SEEDS, VARIANTS, Mixes, copyable, gains, mixes

STUDY = Mixes()


@pytest.mark.parametrize("scale", SCALES)
def test_every_variant_is_run_on_every_mix_and_differs_in_nothing_else(scale):
    assert isinstance(STUDY, Experiment)
    runs = STUDY.runs(scale)
    cells = [(plan.curve, plan.config.seed) for plan in runs]
    assert cells == [
        (f"{variant} | {mix}", seed) for variant in VARIANTS for mix in mixes(scale) for seed in SEEDS[scale]
    ]
    plain = runs[0].config
    for plan in runs:
        config, (variant, mix) = plan.config, plan.curve.split(" | ")
        assert config.model.attention == VARIANTS[variant]
        assert config.task.corpus == plain.task.corpus + MIXES[mix]
        assert config.lr == RATES[scale][variant != VANILLA]
        same = config.replace(name=plain.name, lr=plain.lr, seed=plain.seed, task=plain.task)
        assert same.replace(model=config.model.replace(attention="vanilla")) == plain


def table(**gain):
    """A planted table: mixes with 5% to 40% of their bits copyable, and each variant's gain by that fraction."""
    rng = np.random.default_rng(0)
    rows, by = [], {K_ONLY: gain["key"], OFFSET: gain.get("offset", gain["key"]), V_ONLY: gain["value"]}
    for at, mix in enumerate(MIXES):
        fraction, bits = 0.05 * (at + 1), 2.0 + 0.3 * (at % 3)
        for variant in VARIANTS:
            for seed in range(2):
                noise = rng.normal(0, 0.001)
                saved = 0.0 if variant == VANILLA else by[variant](fraction) + noise
                there = bits * (fraction - (saved if variant == K_ONLY else 0.0))
                rows.append((variant, mix, 0.01, seed, 1, bits * (1 - saved), there, 0.1, fraction / 2))
    columns = "variant mix lr seed n_params bits_per_byte bits_copyable bits_misled positions_copyable"
    return pd.DataFrame(rows, columns=columns.split())


def verdicts(**gain):
    return [claim.verdict for claim in judged(STUDY.claims(table(**gain), "laptop"))]


def test_gains_are_fractions_of_vanillas_bits():
    data = table(key=lambda x: x / 2, value=lambda x: 0.04)
    fractions = dict(zip(MIXES, 0.05 * np.arange(1, 9), strict=True))
    assert copyable(data).to_dict() == pytest.approx(fractions)
    for mix, fraction in fractions.items():
        assert gains(data, K_ONLY)[mix] == pytest.approx(fraction / 2, abs=2e-3)
        assert gains(data, K_ONLY, "bits_copyable")[mix] == pytest.approx(gains(data, K_ONLY)[mix])
        assert gains(data, V_ONLY)[mix] == pytest.approx(0.04, abs=2e-3)


def test_claims_hold_if_keys_gain_by_copying_and_values_everywhere():
    assert verdicts(key=lambda x: x / 2, value=lambda x: 0.04) == ["holds"] * 6


def test_claims_fail_if_every_bit_becomes_cheaper_alike():
    """Then the gain in bits per byte still differs by mix, but the fractions do not: no slope, and an intercept."""
    told = verdicts(key=lambda x: 0.06, offset=lambda x: 0.09, value=lambda x: 0.0)
    assert told == ["undecided", "fails", "undecided", "fails", "fails", "fails"]
    assert verdicts(key=lambda x: 0.2 - x / 3, value=lambda x: 0.0)[0] == "fails"


def test_the_picture_and_the_sentence_name_every_mix_and_variant():
    data = table(key=lambda x: x / 2, value=lambda x: 0.04)
    told = STUDY.summary(data, "laptop")
    assert "code without prose (10%): " in told
    assert "100% of the gain of K only lies at copyable positions" in told
    shown = STUDY.draw(data, "laptop")
    assert {text.get_text() for text in shown.axes[0].texts} == set(MIXES)
