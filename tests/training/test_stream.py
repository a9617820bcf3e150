"""Batches are pure functions of (task, seed, split, step), and only scored positions are kept."""

import numpy as np
import torch

from ihlab.training.stream import Stream, draw, graded, scored
from tasks import IGNORE, Batch, InductionTask

TASK = InductionTask(vocab_size=64, length=16)


def test_a_step_does_not_depend_on_the_steps_before_it():
    walked = list(Stream(TASK, seed=3, batch_size=6).steps(0, 5))
    jumped = list(Stream(TASK, seed=3, batch_size=6).steps(4, 5))
    assert torch.equal(walked[4][0].tokens, jumped[0][0].tokens)
    assert torch.equal(walked[4][0].targets, jumped[0][0].targets)


def test_splits_seeds_and_steps_differ():
    places = [(0, "train", 0), (0, "eval", 0), (1, "train", 0), (0, "train", 1)]
    assert len({draw(TASK, seed, split, step, 4).inputs.tobytes() for seed, split, step in places}) == 4


def test_pieces_hold_the_same_rows_as_the_whole_batch():
    whole = Stream(TASK, seed=0, batch_size=6).step(2)[0]
    pieces = Stream(TASK, seed=0, batch_size=6, pieces=3).step(2)
    assert torch.equal(torch.cat([piece.tokens for piece in pieces]), whole.tokens)
    assert sum(piece.count for piece in pieces) == whole.count


def test_scored_keeps_exactly_the_targets():
    batch = draw(TASK, 0, "train", 0, 8)
    kept = scored(batch.inputs, batch.targets)
    flat = batch.targets.reshape(-1)
    assert kept.index[: kept.count].tolist() == np.flatnonzero(flat != IGNORE).tolist()
    assert kept.targets[: kept.count].tolist() == flat[flat != IGNORE].tolist()
    assert (kept.targets[kept.count :] == IGNORE).all()
    assert len(kept.index) % (8 * 16 // 16) == 0


def test_rows_with_almost_every_position_scored_keep_their_places():
    """Padding must not make a compacted list look like a full one."""
    inputs = np.arange(64).reshape(4, 16)
    targets = inputs + 100
    targets[1, 3] = IGNORE
    kept = scored(inputs, targets)
    assert kept.count == 63
    assert kept.index.tolist() == list(range(64))
    assert kept.targets.tolist() == targets.reshape(-1).tolist()


def test_graded_marks_the_first_answer_of_each_row():
    inputs = np.array([[1, 2, 1, 2], [3, 3, 3, 3]])
    answers = np.array([[IGNORE, IGNORE, 2, 1], [IGNORE, 3, 3, 3]])
    targets = np.full_like(inputs, IGNORE)
    targets[0, 0] = 2
    batch = graded(Batch(inputs=inputs, targets=targets, answers=answers))
    assert batch.index.tolist() == [0, 2, 3, 5, 6, 7]
    assert batch.first.tolist() == [False, True, False, True, False, False]
    assert batch.answers.tolist() == [IGNORE, 2, 1, 3, 3, 3]
    assert batch.targets.tolist() == [2] + 5 * [IGNORE]
    assert (batch.n_targets, batch.n_answers, batch.n_first) == (1, 5, 2)
