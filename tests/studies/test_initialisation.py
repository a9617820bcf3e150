"""Initialisation: runs that differ in the width of the embeddings, and verdicts on made-up tables."""

import numpy as np
import pytest

from ihlab.claims.claim import judged
from ihlab.claims.induction import induction_run
from ihlab.studies.initialisation import INITIALISATION, KV1, KV2, V2
from ihlab.training.ensemble import check_members
from tests.studies import made_up

UNIT = {KV1: 130, KV2: 150, V2: 350}
FINDING = {KV1: 200, KV2: 250, V2: np.inf}
CONSTANT = made_up.HORIZON * 4 // 5
"""The steps before the learning rate falls."""


def table(small, unit, noise=0.03):
    """Steps of each curve with embeddings of 0.02 and of 1, and 7 between them."""

    def of(cell):
        ends = {0.02: small, 1.0: unit}
        return {"steps_to_90": ends.get(cell["embed_std"], dict.fromkeys(UNIT, 7.0))[cell["curve"]]}

    return made_up.table(INITIALISATION, of, noise=noise)


def verdicts(*args, **more):
    return [*made_up.verdicts(INITIALISATION, table(*args, **more)).values()]


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
def test_runs_are_figure_1as_but_for_the_embeddings(scale):
    planned, figure1a = INITIALISATION.runs(scale), induction_run(scale)
    assert {p.config.lr for p in planned} == {figure1a.lr}
    assert {p.config.steps for p in planned} == {2 * figure1a.steps}
    models = {p.config.model.replace(embed_std=None, attention="vanilla", n_layers=1) for p in planned}
    assert models == {figure1a.model}
    for curve in {p.curve for p in planned}:
        check_members([p.config for p in planned if p.curve == curve])


def test_verdicts_can_come_out_either_way():
    assert verdicts(FINDING, UNIT) == ["holds"] * 5
    assert verdicts({KV1: 700, KV2: 700, V2: 400}, UNIT) == ["fails"] * 3 + ["holds", "fails"]
    assert verdicts(FINDING, {**UNIT, KV1: 340})[3] == "fails"
    assert verdicts(FINDING, {**UNIT, V2: np.inf})[0] == "not tested at this scale"


def test_what_is_learned_while_the_rate_falls_does_not_count_and_the_declared_row_is_kept():
    data = table({**FINDING, V2: 900}, {**UNIT, V2: 350})
    [vanilla, *others] = judged(INITIALISATION.claims(data, "laptop"))
    assert vanilla.estimate.value == pytest.approx(CONSTANT / 350, rel=0.1)
    assert vanilla.first.estimate.value == pytest.approx(900 / 350, rel=0.1)
    assert [claim.first is None for claim in others] == [True] * 3 + [False], "no other row has runs so late"
