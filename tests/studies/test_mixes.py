"""The study of mixes: what the runs differ in, and verdicts on planted gains."""

import numpy as np
import pytest

from ihlab.claims.labels import K_ONLY, KV, V_ONLY, VANILLA
from ihlab.studies.mixes import MIXES, OFFSET, RATES, RULES, VARIANTS, copyable, gains
from tests.studies import made_up


@pytest.mark.parametrize("scale", MIXES.scales)
def test_runs_differ_in_variant_mix_and_rate_and_nothing_else(scale):
    plain = MIXES.runs(scale)[0].config
    for plan in MIXES.runs(scale):
        config, (variant, mix) = plan.config, plan.curve.split(" | ")
        assert config.model.attention == VARIANTS[variant]
        assert config.task.corpus == plain.task.corpus + RULES[mix]
        assert config.lr == RATES[scale][variant != VANILLA]
        same = config.replace(name=plain.name, lr=plain.lr, seed=plain.seed, task=plain.task)
        assert same.replace(model=config.model.replace(attention="vanilla")) == plain


def table(**gain):
    """A planted table: mixes with 5% to 40% of their bits copyable, and each variant's gain by that fraction."""
    by = {VANILLA: lambda x: 0.0, K_ONLY: gain["key"], OFFSET: gain.get("offset", gain["key"]), V_ONLY: gain["value"]}
    by[KV] = gain.get("both", lambda x: gain["key"](x) + gain["value"](x))
    rng = np.random.default_rng(0)

    def row(cell):
        at = list(RULES).index(cell["mix"])
        fraction, bits, variant = 0.05 * (at + 1), 2.0 + 0.3 * (at % 3), cell["variant"]
        saved = by[variant](fraction) + (variant != VANILLA) * rng.normal(0, 0.001)
        there = bits * (fraction - (saved if variant == K_ONLY else 0.0))
        return {"bits_per_byte": bits * (1 - saved), "bits_copyable": there}

    return made_up.table(MIXES, row, seeds=2, noise=0.0)


def verdicts(**gain):
    return list(made_up.verdicts(MIXES, table(**gain)).values())


def test_gains_are_fractions_of_vanillas_bits():
    data = table(key=lambda x: x / 2, value=lambda x: 0.04)
    fractions = dict(zip(RULES, 0.05 * np.arange(1, 9), strict=True))
    assert copyable(data).to_dict() == pytest.approx(fractions)
    for mix, fraction in fractions.items():
        assert gains(data, K_ONLY)[mix] == pytest.approx(fraction / 2, abs=2e-3)
        assert gains(data, K_ONLY, "bits_copyable")[mix] == pytest.approx(gains(data, K_ONLY)[mix])
        assert gains(data, V_ONLY)[mix] == pytest.approx(0.04, abs=2e-3)


def test_claims_hold_if_keys_gain_by_copying_and_values_everywhere():
    assert verdicts(key=lambda x: x / 2, value=lambda x: 0.04) == ["holds"] * 8


def test_claims_fail_if_every_bit_becomes_cheaper_alike():
    """Then the gain in bits per byte still differs by mix, but the fractions do not: no slope, and an intercept."""
    told = verdicts(key=lambda x: 0.06, offset=lambda x: 0.09, value=lambda x: 0.0, both=lambda x: 0.03)
    assert told == ["undecided", "fails", "undecided", *["fails"] * 5]
    assert verdicts(key=lambda x: 0.2 - x / 3, value=lambda x: 0.0)[0] == "fails"
