"""Bounds of several heads by branching, against every sequence."""

import numpy as np
import pytest

from ihlab import InductionTask
from ihlab.certify import certify, check, walks
from ihlab.certify.enclosures import Interval
from ihlab.certify.judges import SeveralHeads
from ihlab.certify.ratios import weights
from tasks import ConfigError
from tests.certify.brute_force import QUESTION, small, smallest_margins

TASK = InductionTask(vocab_size=5, length=5, min_token=0)


def double_model(seed, n_heads, embedding=2.0, **fields):
    """A random model whose logits are large enough to be right on some questions."""
    model = small(seed, d_vocab=5, n_heads=n_heads, **fields)
    model.embed.weight.data *= embedding
    return model


@pytest.mark.parametrize(("n_heads", "fields"), [(2, {}), (2, {"positional": "rope"}), (3, {})])
def test_bounds_lie_below_every_margin(n_heads, fields):
    fields = fields | ({"d_model": 12} if n_heads == 3 else {})
    for seed in (11, 13):
        model = double_model(seed, n_heads, **fields)
        truth = smallest_margins(model, 5, [5])
        for row in certify(model, TASK, [5]).table.join(truth, on=QUESTION).itertuples():
            assert row.bound <= row.smallest + 1e-6
            assert row.margin >= row.smallest - 1e-6
            assert row.verdict in ("unknown", "proved" if row.smallest > 0 else "refuted")


def test_two_heads_are_decided_where_sums_of_heads_are_too_weak(monkeypatch):
    model = double_model(13, 2)
    decided = certify(model, TASK, [6]).table["verdict"]
    assert set(decided) == {"proved", "refuted"}
    monkeypatch.setattr(
        SeveralHeads, "_branch", lambda self, tables, question, bounds, walk: (bounds.min(), walk)
    )
    assert (certify(model, TASK, [6]).table["verdict"] == "unknown").sum() == 2


def test_the_check_branches_again_and_believes_no_higher_bound(tmp_path):
    model = double_model(13, 2)
    certificate = certify(model, TASK, [6])
    certificate.save(tmp_path / "two.json")
    assert check(tmp_path / "two.json", model) == len(certificate.table)
    row = certificate.table[certificate.table["verdict"] == "proved"]["bound"].idxmin()
    certificate.table.loc[row, "bound"] *= 1 + 1e-6
    certificate.save(tmp_path / "raised.json")
    with pytest.raises(ConfigError, match="margin may be below"):
        check(tmp_path / "raised.json", model)


def test_a_weight_that_overflows_proves_nothing():
    mass = Interval(np.full((2, 1, 2, 3), 1e200), np.full((2, 1, 2, 3), 1e200))
    gain, one = np.full((2, 1, 2, 3), 1e200), np.ones(2)
    found = weights(mass, gain, np.zeros(2), one, np.zeros(2), one)
    assert (found == -np.inf).all()
    one_token = Interval(np.ones((1, 2, 3)), np.ones((1, 2, 3)))
    nothing = np.zeros((1, 2), int)
    question = walks.Question(np.zeros(2, int), nothing, nothing, np.ones(1, bool), 0, 1)
    assert walks.lightest_walk(one_token, found, 0.0, question, 3)[0] == -np.inf
