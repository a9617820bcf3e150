"""Padding: a padded row scores what the row scores alone, on either side of it."""

import numpy as np
import pytest
import torch

from ihlab.measure.heads import best_offset, pattern_scores, source_positions
from ihlab.measure.padding import moved_batch
from ihlab.model.lens.padding import mask_of
from tasks import IGNORE, Batch, ConfigError

LENGTHS = (10, 8, 6)


def rows(seed=0):
    """Random rows of several lengths, with patterns [layer 2, head 3, n, n] for each."""
    generator = torch.Generator().manual_seed(seed)
    tokens = [torch.randint(1, 5, (n,), generator=generator) for n in LENGTHS]
    patterns = [torch.rand(2, 3, n, n, generator=generator).tril() for n in LENGTHS]
    return tokens, patterns


def padded(tokens, patterns, side):
    """The rows in one batch, with NaN and other numbers in the patterns at padding, and the mask."""
    size = max(LENGTHS)
    ids, mask = torch.zeros(len(LENGTHS), size, dtype=torch.int64), torch.zeros(len(LENGTHS), size)
    whole = torch.rand(2, len(LENGTHS), 3, size, size)
    for i, (row, pattern) in enumerate(zip(tokens, patterns, strict=True)):
        at = slice(size - len(row), size) if side == "left" else slice(0, len(row))
        ids[i, at], mask[i, at] = row, 1
        whole[:, i, :, mask[i] == 0] = torch.nan
        whole[:, i, :, at, at] = pattern
    return ids, mask, whole


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_score_what_they_score_alone(side):
    tokens, patterns = rows()
    ids, mask, whole = padded(tokens, patterns, side)
    scores = pattern_scores(whole, ids, mask_of(ids, mask))
    places = [source_positions(row[None]) for row in tokens]
    for name, score in scores.items():
        total, count = torch.zeros(2, 3), 0
        for pattern, of_row in zip(patterns, places, strict=True):
            total = total + (pattern * of_row[name]).sum(dim=(2, 3))
            count += int(of_row[name].any(dim=-1).sum())
        torch.testing.assert_close(score, total / count)


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_offset_is_found_behind_padding(side):
    tokens, patterns = rows()
    for pattern in patterns:
        pattern.zero_()
        for back in range(3):  # head h attends h + 1 back
            for q in range(pattern.shape[-1]):
                pattern[:, back, q, max(q - back - 1, 0)] = 1
    ids, mask, whole = padded(tokens, patterns, side)
    offset, weight = best_offset(whole, ids, mask_of(ids, mask))
    assert offset.tolist() == [[1, 2, 3]] * 2
    torch.testing.assert_close(weight, torch.ones(2, 3))


def test_an_induction_head_has_no_offset_where_tokens_repeat_at_one_distance():
    """What it attends to is always a match, or it finds nothing and rests on the first token."""
    ids = torch.arange(8).repeat(1, 3)
    pattern = torch.zeros(1, 1, 2, 24, 24)
    for q in range(24):
        pattern[0, 0, 0, q, q - 7 if q >= 8 else 0] = 1
        pattern[0, 0, 1, q, max(q - 2, 0)] = 1
    offset, weight = best_offset(pattern, ids)
    assert weight[0, 0] < 0.2
    assert (offset[0, 1], weight[0, 1]) == (2, 1)


def test_the_masks_a_caller_may_give():
    ids = torch.tensor([[7, 1, 2], [0, 0, 3]])
    assert mask_of(ids) is None
    assert mask_of(ids, torch.ones(2, 3)) is None
    expected = torch.tensor([[True] * 3, [False, False, True]])
    for real in (mask_of(ids, expected.int().tolist()), mask_of(ids, padding=0)):
        torch.testing.assert_close(real, expected)
    assert mask_of(ids, padding=9) is None
    for wrong, sentence in (
        ([[1, 1], [1, 1]], r"the shape \[2, 2\], but the tokens are \[2, 3\]"),
        ([[1, 1, 1], [1, 1]], "sequences of one length"),
        ([[2, 1, 1], [1, 1, 1]], "other numbers than 0"),
        ([[0, 0, 0], [1, 1, 1]], "Sequence 0 of the attention_mask is only padding"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            mask_of(ids, wrong)


def test_a_batch_is_moved_with_its_targets_and_groups():
    inputs = np.array([[0, 0, 5, 6], [1, 2, 3, 0]])
    targets = np.array([[IGNORE, IGNORE, IGNORE, 9], [IGNORE, 8, IGNORE, IGNORE]])
    groups = {"gap": inputs * 10, "hops": np.array([1, 2])}
    moved, real = moved_batch(
        Batch(inputs, targets, groups=groups), mask_of(torch.from_numpy(inputs), padding=0)
    )
    assert moved.inputs.tolist() == [[5, 6, 0, 0], [1, 2, 3, 0]]
    assert moved.targets.tolist() == [[IGNORE, 9, IGNORE, IGNORE], [IGNORE, 8, IGNORE, IGNORE]]
    assert moved.groups["gap"].tolist() == (moved.inputs * 10).tolist()
    assert moved.groups["hops"].tolist() == [1, 2]
    torch.testing.assert_close(real, torch.from_numpy(moved.inputs != 0))
