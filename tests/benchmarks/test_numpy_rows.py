"""The induction task in NumPy is the same task."""

import numpy as np
import pytest
from numpy_rows import induction_batch
from scipy.stats import ks_2samp

from tasks import IGNORE, InductionTask

TASKS = {
    "crowded": InductionTask(vocab_size=20, length=12, min_token=3),
    "wide": InductionTask(vocab_size=300, length=40),
}


def answers_of(tokens):
    """The answers that a row's tokens leave no choice about, read from its start; a repeat at once has none."""
    answers, t = [IGNORE] * len(tokens), 0
    while t < len(tokens):
        followers = {tokens[i + 1] for i in range(t) if tokens[i] == tokens[t]}
        if len(followers) == 1 and tokens[t] != tokens[t - 1]:
            answers[t] = followers.pop()
            t += 1  # what follows was put there, not drawn
        t += 1
    return answers


@pytest.mark.parametrize("name", TASKS)
def test_answers_are_those_of_the_rule(name):
    task = TASKS[name]
    batch = induction_batch(task, 200, np.random.default_rng(0))
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert targets == answers_of(row)
        assert any(target != IGNORE for target in targets)
        for t in range(task.length - 1):
            assert targets[t] in (IGNORE, row[t + 1])


@pytest.mark.parametrize("name", TASKS)
def test_it_has_the_law_of_the_kernel(name):
    """Answers, distinct tokens and mean ids of rows; by the test of Kolmogorov and Smirnov."""
    task = TASKS[name]
    ours, theirs = task.batch(4000, np.random.default_rng(1)), induction_batch(task, 4000, np.random.default_rng(2))
    measures = (
        lambda batch: (batch.targets != IGNORE).sum(axis=1),
        lambda batch: (np.diff(np.sort(batch.inputs, axis=1), axis=1) > 0).sum(axis=1),
        lambda batch: batch.inputs.mean(axis=1),
    )
    for measure in measures:
        assert ks_2samp(measure(ours), measure(theirs)).pvalue > 1e-3
    assert theirs.inputs.min() == task.min_token
    assert theirs.inputs.max() == task.vocab_size - 1
