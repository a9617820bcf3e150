"""Several followers at once: what is counted, and verdicts on made-up tables."""

import pytest
import torch

from figures.parallel.study import GRID, PARALLEL, followers_found
from ihlab.recipes.induction import KV1
from tests.figures.made_up import table, verdicts


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


def judge(narrow, wide):
    """Verdicts on each model if one and four followers are found as often as given."""
    fractions = {8: narrow, 32: wide}
    data = table(PARALLEL, lambda cell: {"found": fractions[cell["width"]][cell["followers"] > 1]})
    judged = list(verdicts(PARALLEL, data).values())
    return judged[:3], judged[3:]


def test_verdicts_can_come_out_either_way():
    assert judge(narrow=(0.96, 0.5), wide=(0.96, 0.93)) == (["holds"] * 3, ["holds"] * 3)
    assert judge(narrow=(0.96, 0.94), wide=(0.96, 0.95)) == (["holds", "fails", "holds"],) * 2


def test_vanilla_models_that_have_not_learned_induction_are_not_compared():
    untested = ["fails", "not tested at this scale", "fails"]
    assert judge(narrow=(0.4, 0.4), wide=(0.96, 0.5)) == (["fails"] * 3, untested)
