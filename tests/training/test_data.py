"""Batches are pure functions of (task, seed, split, step)."""

import torch

from ihlab.measure.batches import draw
from ihlab.training.data import Stream
from tasks import InductionTask

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
