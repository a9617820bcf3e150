"""Only scored positions are kept, and the queries that they need."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ihlab import ModelConfig, Transformer
from ihlab.measure.batches import draw
from ihlab.measure.gathered import evaluation_batch, query_positions, training_batch
from tasks import IGNORE, Batch, InductionTask

TASK = InductionTask(vocab_size=64, length=16)


def test_a_training_batch_keeps_exactly_the_targets():
    batch = draw(TASK, 0, "train", 0, 8)
    kept = training_batch(batch.inputs, batch.targets)
    assert kept.index is not None
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
    kept = training_batch(inputs, targets)
    assert kept.count == 63
    assert kept.index is None
    assert kept.targets.tolist() == targets.reshape(-1).tolist()


def test_an_evaluation_batch_marks_the_first_answer_of_each_row():
    inputs = np.array([[1, 2, 1, 2], [3, 3, 3, 3]])
    answers = np.array([[IGNORE, IGNORE, 2, 1], [IGNORE, 3, 3, 3]])
    targets = np.full_like(inputs, IGNORE)
    targets[0, 0] = 2
    batch = evaluation_batch(Batch(inputs=inputs, targets=targets, answers=answers))
    assert batch.index.tolist() == [0, 2, 3, 5, 6, 7]
    assert batch.first.tolist() == [False, True, False, True, False, False]
    assert batch.answers.tolist() == [IGNORE, 2, 1, 3, 3, 3]
    assert batch.targets.tolist() == [2] + 5 * [IGNORE]
    assert batch.counts == (1, 5, 2)


@pytest.mark.parametrize("largest", [384, 383])
def test_no_mask_is_larger_than_the_largest(monkeypatch, largest):
    """Of a long row's many queries it would take more memory than the layer at every position: 3 *
    4 * 32 scores.
    """
    cfg = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_vocab=11, n_ctx=32, attention="kv_shift")
    model, tokens = Transformer(cfg), torch.arange(96).reshape(3, 32) % 11
    kept = np.zeros((3, 32), bool)
    kept[0, [5, 9, 30]] = kept[1, 0] = True
    index = torch.from_numpy(np.flatnonzero(kept))
    everywhere = model.final_residual(tokens).flatten(0, 1)[index]
    monkeypatch.setattr("ihlab.measure.gathered.LARGEST_MASK", largest)
    queries = query_positions(kept)
    assert (queries is None) is (largest < 384)
    torch.testing.assert_close(model.residual_at(tokens, index, queries), everywhere)


@given(arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 40))))
def test_queries_are_different_positions_and_include_all_that_are_kept(kept):
    queries, length = query_positions(kept), kept.shape[1]
    fullest = max(row.sum() for row in kept)
    if queries is None:
        # Otherwise rounding up would have kept it within half.
        assert 2 * (fullest + max(1, length // 16)) > length
        return
    assert 2 * queries.shape[1] <= length
    assert np.array_equal(queries, np.argsort(~kept, axis=1, kind="stable")[:, : queries.shape[1]])
