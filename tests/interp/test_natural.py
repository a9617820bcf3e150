"""Induction on sequences of one's own, and how much a context helps: both counted by hand."""

import pytest
import torch
from torch.nn import functional as F

from ihlab.interp.natural import in_context_learning_score, induction_places, natural_scores
from ihlab.interp.patterns import pattern_of, probed
from tasks import ConfigError


def by_hand(row):
    """Pairs (query, key): the token after the last copy at least 2 back, where it is the query's next token."""
    found = []
    for q in range(len(row) - 1):
        copies = [k for k in range(q - 1) if row[k] == row[q]]
        if copies and row[copies[-1] + 1] == row[q + 1]:
            found.append((q, copies[-1] + 1))
    return found


def test_places_by_hand():
    rows = torch.randint(4, (5, 20), generator=torch.Generator().manual_seed(0))
    for row, places in zip(rows.tolist(), induction_places(rows), strict=True):
        assert list(map(tuple, places.nonzero().tolist())) == by_hand(row)
    assert by_hand([7, 8, 9, 7, 8]) == [(3, 1)]


@pytest.mark.parametrize("side", [None, "left", "right"])
def test_scores_are_the_attention_summed_by_hand(make_model, side):
    model = make_model()
    rows = torch.randint(4, (3, 16), generator=torch.Generator().manual_seed(1))
    patterns = pattern_of(probed(model, rows), "effective")
    total, n = torch.zeros(2, 4), 0
    for i, row in enumerate(rows.tolist()):
        for q, k in by_hand(row):
            total += patterns[:, i, :, q, k]
            n += 1
    given, mask = rows, None
    if side is not None:
        parts = [(rows, torch.ones(3, 16)), (torch.full((3, 5), 2), torch.zeros(3, 5))]
        parts = parts[::-1] if side == "left" else parts
        given, mask = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
    table = natural_scores(model, given, mask)
    assert table["queries"].tolist() == [n] * 8
    assert table["natural_induction"].to_numpy().reshape(2, 4) == pytest.approx((total / n).numpy(), abs=1e-6)
    with pytest.raises(ConfigError, match="no repeated token has the same follower as before"):
        natural_scores(model, [[1, 2, 3, 4]])


def test_the_in_context_learning_score_is_a_difference_of_losses(make_model):
    model = make_model()
    rows = torch.randint(40, (4, 20), generator=torch.Generator().manual_seed(2))
    logs = F.log_softmax(model(rows).detach(), dim=-1)
    right = sum(-logs[i, 14, rows[i, 15]] + logs[i, 4, rows[i, 5]] for i in range(4)) / 4
    assert in_context_learning_score(model, rows, 5, 15) == pytest.approx(right.item())
    padded = torch.cat([torch.zeros(4, 3, dtype=torch.int64), rows], dim=1)
    assert in_context_learning_score(model, padded, 5, 15, (torch.arange(23) >= 3).expand(4, -1)) == pytest.approx(
        right.item()
    )
    with pytest.raises(ConfigError, match="The longest sequence has 20 tokens, but the loss at token 500 needs 501"):
        in_context_learning_score(model, rows)
