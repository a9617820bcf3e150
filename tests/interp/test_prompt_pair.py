"""Pairs of prompts: the corruption differs where it should, and has the other answer by the task's own rule."""

import numpy as np
import pytest
import torch

from ihlab.interp.prompt_pair import prompt_pair
from tasks import ConfigError, InductionTask, MQARTask, MultiHopTask, NGramTask


@pytest.mark.parametrize("task", [InductionTask(vocab_size=60, length=24), MQARTask(vocab_size=64, length=64)])
def test_only_the_two_ids_are_swapped_and_only_before_the_scored_position(task):
    pair = prompt_pair(task, size=20, seed=3)
    assert not (pair.answer == pair.other).any()
    for row in range(20):
        at, answer, other = (int(each[row]) for each in (pair.position, pair.answer, pair.other))
        clean, corrupted = pair.clean[row].tolist(), pair.corrupted[row].tolist()
        swap = {answer: other, other: answer}
        assert corrupted[:at] == [swap.get(token, token) for token in clean[:at]]
        assert corrupted[at:] == clean[at:]
        assert clean[at] not in swap
        assert answer in clean[:at]


def test_the_other_id_follows_the_earlier_occurrence_in_the_corrupted_prompt():
    """Induction by definition: the answer is the token after the earlier occurrence of the scored token."""
    pair = prompt_pair(InductionTask(vocab_size=60, length=24), size=20)
    for prompts, right in ((pair.clean, pair.answer), (pair.corrupted, pair.other)):
        for row, at, answer in zip(prompts.tolist(), pair.position.tolist(), right.tolist(), strict=True):
            assert {row[i + 1] for i in range(at - 1) if row[i] == row[at]} == {answer}


def test_the_logit_difference_is_the_mean_over_sequences():
    pair = prompt_pair(InductionTask(vocab_size=60, length=24), size=2)
    logits = torch.zeros(2, 24, 60)
    logits[0, pair.position[0], pair.answer[0]] = 3.0
    logits[1, pair.position[1], pair.other[1]] = 1.0
    assert pair.logit_difference(logits) == pytest.approx((3 - 1) / 2)


def test_a_task_whose_answers_are_not_in_the_prompt_is_refused():
    class Unseen:
        kind = "unseen"

        def batch(self, size, rng):
            batch = NGramTask().batch(size, rng)
            return type(batch)(np.arange(batch.inputs.size).reshape(batch.inputs.shape), np.full_like(batch.inputs, -1))

    with pytest.raises(ConfigError, match="No sequence of task 'unseen' has an answer that occurs before it"):
        prompt_pair(Unseen(), size=2)
    with pytest.raises(ConfigError, match="size is 0"):
        prompt_pair(InductionTask(vocab_size=60, length=24), size=0)
    with pytest.raises(ConfigError, match="There is no corruption 'keys'"):
        prompt_pair(InductionTask(vocab_size=60, length=24), corrupt="keys")


def hopped(before, token, hops):
    """The rule of the multi-hop task in plain Python; one hop is the rule of induction and of recall."""
    end = len(before)
    for _ in range(hops):
        end = max(i for i in range(end) if before[i] == token) + 1
        token = before[end]
    return token


KEYED = [InductionTask(vocab_size=60, length=24), MQARTask(vocab_size=64, length=64)]
HOPPED = MultiHopTask(vocab_size=60, length=40, max_hops=2, alphabet=30)


@pytest.mark.parametrize("task", [*KEYED, HOPPED])
def test_two_keys_change_places_and_the_answer_becomes_the_other_ones(task):
    pair = prompt_pair(task, size=20, seed=3, corrupt="key")
    for row in range(20):
        at, clean, corrupted = int(pair.position[row]), pair.clean[row].tolist(), pair.corrupted[row].tolist()
        moved = [i for i in range(len(clean)) if clean[i] != corrupted[i]]
        one, two = moved
        assert two < at
        assert two - one >= 2
        assert [corrupted[one], corrupted[two]] == [clean[two], clean[one]]
        assert all(clean[:at].count(clean[i]) == 1 for i in moved)
        assert clean[at] in (clean[one], clean[two])
        hops = clean[0] if task is HOPPED else 1
        right = [hopped(prompt[:at], clean[at], hops) for prompt in (clean, corrupted)]
        assert right == [pair.answer[row], pair.other[row]]
        assert right[0] != right[1]
