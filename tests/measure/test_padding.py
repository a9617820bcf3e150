"""Padding: a padded row scores what the row scores alone, on either side of it."""

import numpy as np
import pytest
import torch

from ihlab.measure.heads import best_offset, pattern_scores
from ihlab.measure.padding import moved_batch
from ihlab.model.lens.padding import mask_of
from tasks import Batch, ConfigError

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
    for i, (row, pattern) in enumerate(zip(tokens, patterns, strict=True)):
        alone = pattern_scores(pattern[:, None], row[None])
        scores = pattern_scores(whole[:, [i]], ids[[i]], mask_of(ids[[i]], mask[[i]]))
        for name, score in scores.items():
            torch.testing.assert_close(score, alone[name])


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
    for given in ({}, {"attention_mask": torch.ones(2, 3)}, {"padding": 9}):
        assert mask_of(ids, **given) is None
    expected = [[True] * 3, [False, False, True]]
    given_as_list = mask_of(ids, attention_mask=[[1, 1, 1], [0, 0, 1]])
    for mask in (given_as_list, mask_of(ids, padding=0)):
        assert mask is not None
        assert mask.tolist() == expected
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
    groups = {"gap": inputs * 10, "hops": np.array([1, 2])}
    batch = Batch(inputs, inputs + 7, inputs + 8, groups)
    moved, real = moved_batch(batch, mask_of(torch.from_numpy(inputs), padding=0))
    assert moved.inputs.tolist() == [[5, 6, 0, 0], [1, 2, 3, 0]]
    for array, difference in ((moved.targets, 7), (moved.answers, 8)):
        assert (array == moved.inputs + difference).all()
    assert (moved.groups["gap"] == moved.inputs * 10).all()
    assert moved.groups["hops"].tolist() == [1, 2]
    torch.testing.assert_close(real, torch.from_numpy(moved.inputs != 0))
