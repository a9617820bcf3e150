"""Depo by depth: what is counted, and verdicts on made-up tables."""

import numpy as np
import pytest
import torch

from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.paper.studies.depo import CANON, DEPO, SEQUENCES, TASK, accuracies, config, followed
from ihlab.recipes.labels import K_ONLY, VANILLA
from tests.paper.studies.made_up import table, verdicts


class Walker:
    """A run whose model walks up to `known` steps, pair by pair. With `ordered`, it only reads pairs backwards."""

    def __init__(self, known, ordered=False):
        self.config, self.known, self.ordered = config({"variant": K_ONLY, "layers": 2}, "laptop"), known, ordered

    def model(self):
        def logits(tokens):
            scores = torch.zeros(*tokens.shape, TASK.vocab_size)
            for row, one in enumerate(tokens.tolist()):
                pairs = dict(zip(one[1:17:2], one[2:18:2], strict=True))
                at = {x: i for i, x in enumerate(one[1:17:2])}
                k, name, places = one[17], one[18], []
                for _ in range(min(k, self.known)):
                    places.append(at[name])
                    name = pairs[name]
                lost = self.ordered and k == 3 and places[2] > places[1]
                scores[row, 18, 0 if lost else name] = 1.0
            return scores

        return logits


@pytest.mark.parametrize("known", [1, 2, 3])
def test_a_walk_of_h_steps_is_right_up_to_h(known):
    found = accuracies(Walker(known))
    assert [found[f"k{k}"] for k in (1, 2, 3)] == [float(k <= known) for k in (1, 2, 3)]
    assert found["mean"] == pytest.approx(known / 3)


def test_the_order_of_the_last_two_pairs_divides_the_walks():
    found = accuracies(Walker(3, ordered=True))
    assert (found["earlier"], found["later"]) == (1.0, 0.0)
    assert found["k3"] == pytest.approx(0.5, abs=0.05)


def test_no_two_answers_of_a_query_are_the_same_and_the_first_query_is_at_one_place():
    batch = draw(TASK, EVAL_SEED, "eval", 0, SEQUENCES)
    assert set((batch.targets != -100).argmax(axis=1)) == {2 * TASK.names + 2}
    assert 2 * TASK.max_hops < TASK.names  # k steps forward are never k' steps backward


def accuracy(steps, part=0.15):
    rising = [0.97 if k <= steps else part for k in (1, 2, 3)]
    return {"k1": rising[0], "k2": rising[1], "k3": rising[2], "mean": np.mean(rising)}


def judge(vanilla, keys, canon, gap):
    """Verdicts if each variant follows so many steps at 1, 2 and 3 layers. KV shifting is as K only."""
    steps, parts = {VANILLA: vanilla, CANON: canon}, {"earlier": 0.5 + gap / 2, "later": 0.5 - gap / 2}
    data = table(DEPO, lambda cell: accuracy(steps.get(cell["variant"], keys)[cell["layers"] - 1]) | parts)
    return verdicts(DEPO, data)


def test_verdicts_can_come_out_either_way():
    law = judge((0, 1, 2), (1, 2, 3), (1, 2, 3), 0.9)
    assert {v for name, v in law.items() if not name.startswith("canon_more")} == {"holds"}
    assert {v for name, v in law.items() if name.startswith("canon_more")} <= {"fails", "undecided"}
    other = judge((1, 2, 3), (0, 0, 1), (2, 3, 2), 0.1)
    assert {v for name, v in other.items() if name.startswith("law")} == {"fails"}


def test_following_ends_at_the_first_miss():
    data = table(DEPO, lambda cell: {"k1": 0.95, "k2": 0.5, "k3": 0.95}, noise=0.0)
    assert set(followed(data)) == {1}
    assert set(followed(data, 0.4)) == {3}
