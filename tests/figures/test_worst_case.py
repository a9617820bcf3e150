"""Worst case: what a run that does not get to .999 means."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from figures.worst_case.study import KV2, WORST_CASE, measure
from ihlab.study.claim import NOT_TESTED, judged
from ihlab.study.ledger import Folder
from tests.figures.live import HOMES


def test_a_cell_of_which_most_runs_do_not_get_there_stops_its_questions():
    data = Folder(HOMES["worst_case"]).data()
    data.loc[data["variant"] == KV2, "worst_case"] = np.nan
    claims = judged(WORST_CASE.claims(data, "laptop"))
    untested = {claim.id for claim in claims if claim.verdict == NOT_TESTED}
    assert untested == {"two_shifted_layers", "second_layer"}


@pytest.mark.parametrize("accuracy", [0.5, 0.9995])
def test_only_a_run_that_gets_there_is_attacked(accuracy, monkeypatch):
    attacked_run = SimpleNamespace(accuracy=0.25, table=pd.DataFrame({"margin": [-3.0, 1.0, 2.0]}))
    monkeypatch.setattr("ihlab.certify.attack", lambda *_, **__: attacked_run)
    run = SimpleNamespace(metrics=pd.DataFrame({"step": [0, 40], "accuracy": [0.1, accuracy]}))
    measured = measure(run)
    attacked = accuracy > 0.999
    assert measured["steps_to_999"] == (40 if attacked else np.inf)
    expected = (0.25, 1.0) if attacked else (np.nan, np.nan)
    found = (measured["worst_case"], measured["median_margin"])
    assert found == pytest.approx(expected, nan_ok=True)
