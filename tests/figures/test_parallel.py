"""Several followers at once: what is counted."""

import pytest
import torch

from figures.parallel.study import GRID, followers_found
from ihlab.recipes.induction import KV1


class Known:
    """A run whose model knows the first `known` followers of the last token, and answers the own
    token otherwise.
    """

    def __init__(self, followers, known):
        self.config, self.known = GRID({"variant": KV1, "width": 8, "followers": followers}), known

    def model(self):
        def logits(tokens):
            scores = torch.zeros(*tokens.shape, 64)
            for row, last in enumerate(tokens[:, -1]):
                for at in (tokens[row, :-1] == last).nonzero()[: self.known]:
                    scores[row, -1, tokens[row, at + 1]] = 1.0
                scores[row, -1, last] = 0.5
            return scores

        return logits


@pytest.mark.parametrize(("followers", "known"), [(1, 1), (4, 1), (4, 3), (4, 4)])
def test_found_is_the_fraction_of_followers_among_the_likely_tokens(followers, known):
    """The own token takes a place, and a zero is a follower by chance in some sequences."""
    assert followers_found(Known(followers, known))["found"] == pytest.approx(
        known / followers, abs=0.06
    )
