"""The study of token shifts: what is predicted, and what counts as learned."""

from pathlib import Path

import numpy as np
import pandas as pd

from ihlab.paper.studies.shifts import (
    CONV_K,
    NO,
    OFFSET,
    PARTLY,
    PREDICTED,
    SHIFTS,
    SMEAR_EMBED,
    STEPS,
    VARIANTS,
    YES,
    outcome,
)
from ihlab.recipes.labels import K_ONLY, VANILLA
from ihlab.recipes.toy_settings import HOPS, INDUCTION1, INDUCTION2, NGRAM, RECALL_GAP1, RECALL_GAP2, WIDE
from ihlab.study.ask import claims_of, pick
from tests.comparisons import AROUND, NEVER, cell


def table(**steps_and_best):
    """A table of induction with one layer: vanilla attention never learns it; the others by name."""
    names = {"offset": OFFSET, "conv": CONV_K, "smear": SMEAR_EMBED, "k": K_ONLY}
    cells = {VANILLA: (NEVER, 0.2), **{names[name]: each for name, each in steps_and_best.items()}}
    return pd.concat([cell(variant, INDUCTION1, *each) for variant, each in cells.items()])


def test_a_majority_of_seeds_makes_it_learned():
    half, most = AROUND.astype(float), AROUND.astype(float)
    half[4:], most[5:] = np.inf, np.inf
    data = table(offset=(most, 0.9), conv=(half, 0.51), smear=(NEVER, 0.49), k=(half, 0.4))
    verdicts = {
        variant: outcome(data, {"variant": variant, "setting": INDUCTION1}) for variant in data["variant"].unique()
    }
    assert verdicts == {VANILLA: NO, OFFSET: YES, CONV_K: PARTLY, SMEAR_EMBED: NO, K_ONLY: NO}


def test_a_claim_holds_if_the_prediction_is_right_and_fails_if_not():
    data = table(offset=(AROUND, 0.95), conv=(NEVER, 0.3), smear=(NEVER, 0.6))
    claims = {
        claim.setting["variant"]: claim
        for claim in claims_of(SHIFTS.asks, data, "2026-11-26", skip_untrained_cells=True)
    }
    verdicts = {variant: claim.verdict for variant, claim in claims.items()}
    assert verdicts == {VANILLA: "holds", OFFSET: "holds", SMEAR_EMBED: "holds", CONV_K: "fails"}
    assert "not learned; 0 of 8 seeds reach 90%; mean highest accuracy 0.30, vanilla's 0.20" in claims[CONV_K].measure
    wrong = [text.get_text() for text in SHIFTS.draw(data, "laptop").axes[0].texts if "\u2718" in text.get_text()]
    assert wrong == ["no (0.30) \u2718"]


def test_the_table_of_the_page_is_the_stored_one():
    """Median steps, or how many seeds learn and the highest accuracy; an edge of the grid and a wrong prediction."""
    root = Path(__file__).parents[3]
    data = pd.read_csv(root / "figures/shifts/laptop/data.csv")
    page = (root / "docs/token_shifts.md").read_text(encoding="utf-8").partition("## What each learns")[2]
    lines = [[text.strip() for text in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    rows = {name: texts for name, *texts in lines if len(texts) == len(STEPS) and name in VARIANTS}
    assert set(rows) == set(VARIANTS)
    settings = (INDUCTION1, WIDE, INDUCTION2, NGRAM, RECALL_GAP1, RECALL_GAP2, HOPS)
    for variant, setting in PREDICTED:
        which = {"variant": variant, "setting": setting}
        runs, tuning = pick(data, which), pick(data, which, "tuning")
        verdict, learned = outcome(data, which), int(np.isfinite(runs["steps_to_90"]).sum())
        text = f"{runs['steps_to_90'].median():.0f}"
        if verdict != YES:
            text = f"{learned} of {len(runs)}" if learned else "never"
            text += f" ({runs['best'].mean():.2f})".replace("0.", ".")
        text += "†" * (runs["lr"].iloc[0] in (tuning["lr"].min(), tuning["lr"].max()))
        text += " ✘" * (verdict != PREDICTED[variant, setting])
        assert dict(zip(settings, rows[variant], strict=True))[setting] == text, (variant, setting)
