"""Pairs of prompts: the corruption differs where it should, and has the other answer by the task's
own rule.
"""

import numpy as np
import pytest
import torch

from ihlab.interp.prompt_pair import prompt_pair
from tasks import (
    Batch,
    ConfigError,
    IGSMTask,
    InductionTask,
    MQARTask,
    MultiHopTask,
    NGramTask,
    TextTask,
    TriggerTask,
)


@pytest.mark.parametrize(
    "task", [InductionTask(vocab_size=60, length=24), MQARTask(vocab_size=64, length=64)]
)
def test_only_the_two_ids_are_swapped_and_only_before_the_scored_position(task):
    pair = prompt_pair(task, size=20, seed=3)
    assert not (pair.answer == pair.other).any()
    for row in range(20):
        clean, corrupted, at, answer, other = (ids[row].tolist() for ids in vars(pair).values())
        swap = {answer: other, other: answer}
        assert corrupted[:at] == [swap.get(token, token) for token in clean[:at]]
        assert corrupted[at:] == clean[at:]
        assert clean[at] not in swap
        assert answer in clean[:at]


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
            return Batch(np.arange(8).reshape(2, 4), np.full((2, 4), 9))

    with pytest.raises(ConfigError, match="'unseen' has an answer that occurs before it"):
        prompt_pair(Unseen(), size=2)
    with pytest.raises(ConfigError, match="size is 0"):
        prompt_pair(InductionTask(vocab_size=60, length=24), size=0)


def hopped(before, token, hops):
    """The rule of the multi-hop task in plain Python; one hop is the rule of induction and of
    recall.
    """
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
        clean, corrupted, at, answer, other = (ids[row].tolist() for ids in vars(pair).values())
        one, two = [i for i in range(len(clean)) if clean[i] != corrupted[i]]
        assert one + 2 <= two < at
        assert [corrupted[one], corrupted[two]] == [clean[two], clean[one]]
        assert clean[:at].count(clean[one]) == clean[:at].count(clean[two]) == 1
        assert clean[at] in (clean[one], clean[two])
        hops = clean[0] if task is HOPPED else 1
        right = [hopped(prompt[:at], clean[at], hops) for prompt in (clean, corrupted)]
        assert right == [answer, other]
        assert answer != other


def of_result(task, prompt, at):
    """The value after ANS is the result that was written last."""
    words = task.words(np.array(prompt[: at + 1]))
    return {next(prompt[i] for i in reversed(range(at)) if words[i].isdigit())}


def of_induction(task, prompt, at):
    return {prompt[i + 1] for i in range(at) if prompt[i] == prompt[at]}


RIGHT = [
    (InductionTask(vocab_size=60, length=24), of_induction),
    (IGSMTask(), of_result),
]


@pytest.mark.parametrize(("task", "right"), RIGHT)
def test_by_the_rule_of_the_task_the_other_answer_is_the_only_right_one_in_the_corrupted_prompt(
    task, right
):
    pair = prompt_pair(task, size=40, seed=1)
    for row in range(40):
        clean, corrupted, at, answer, other = (ids[row].tolist() for ids in vars(pair).values())
        assert right(task, clean, at) == {answer}
        assert right(task, corrupted, at) == {other}


@pytest.mark.parametrize(
    "task", [TriggerTask(), TextTask(corpus="sample", vocab_size=300, length=64)]
)
def test_what_is_known_by_heart_is_not_scored(task):
    """In both prompts the answer followed the last occurrence of the scored token."""
    pair = prompt_pair(task, size=40)
    for prompts, answers in ((pair.clean, pair.answer), (pair.corrupted, pair.other)):
        for row, at, answer in zip(prompts.tolist(), pair.position, answers, strict=True):
            assert hopped(row[:at], row[at], 1) == answer


UNFIT = [(NGramTask(), "answer"), (IGSMTask(), "key")]


@pytest.mark.parametrize(("task", "corrupt"), UNFIT)
def test_tasks_without_another_right_answer_are_refused(task, corrupt):
    with pytest.raises(
        ConfigError, match=f"corrupt is '{corrupt}', but a corrupted prompt of task '{task.kind}'"
    ):
        prompt_pair(task, 4, corrupt=corrupt)
