"""The keys that head scores count, found one query at a time."""

import numpy as np
import pytest
import torch

from ihlab.measure.heads import source_positions


def counted(row, query):
    """The keys of each score for one query of a row of tokens."""
    copies = {key for key in range(query) if row[key] == row[query]}
    after = {key + 1 for key in copies}
    told_apart = not after & ({query - 1, query} | copies)
    return {
        "prefix_matching": after if told_apart and row[query] not in row[query + 1 :] else set(),
        "previous_token": {query - 1} if query >= 2 else set(),
        "duplicate_token": copies,
        "first_position": {0} if query >= 2 else set(),
    }


@pytest.mark.parametrize("alphabet", [2, 4, 8])
def test_source_positions_are_those_counted_one_by_one(alphabet):
    tokens = np.random.default_rng(alphabet).integers(alphabet, size=(40, 9))
    found = source_positions(torch.from_numpy(tokens))
    for r, query in np.ndindex(tokens.shape):
        wanted = counted(tokens[r].tolist(), query)
        assert {name: set(places[r, query].nonzero().flatten().tolist()) for name, places in found.items()} == wanted
