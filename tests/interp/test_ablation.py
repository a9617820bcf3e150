"""Ablation against the model's own parts: a head without output, z replaced by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ihlab.interp import locate_induction_heads
from ihlab.interp.ablation import (
    ablate_heads,
    ablate_together,
    ablation_sweep,
    replacement,
    row_scores,
)
from ihlab.measure.batches import require_whole
from tasks import IGNORE, Batch, ConfigError, IGSMTask


def by_hand(model, batch, layer, head, values):
    """Loss and accuracy with one head's z set to `values`, one answer at a time."""

    def put(z, hook):
        z = z.clone()
        z[:, :, head] = values
        return z

    inputs = torch.from_numpy(batch.inputs.copy())
    with torch.no_grad():
        logits = model.run_with_hooks(inputs, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", put)])
    losses, hits = [], []
    for row, at in zip(*np.nonzero(batch.targets != IGNORE), strict=True):
        losses.append(-logits[row, at].log_softmax(0)[batch.targets[row, at]].item())
    for row, at in zip(*np.nonzero(batch.answers != IGNORE), strict=True):
        hits.append(logits[row, at].argmax().item() == batch.answers[row, at])
    return {"loss": np.mean(losses), "accuracy": np.mean(hits)}


@pytest.fixture(scope="module")
def model(make_model):
    return make_model()


@pytest.fixture(scope="module")
def z(model, batch):
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.from_numpy(batch.inputs.copy()))
    return cache["z", 0]


def test_resampling_takes_other_rows_at_the_same_position(z):
    swapped = replacement(z, "resample", seed=4)
    sources = []
    for row in range(len(z)):
        same = [other for other in range(len(z)) if torch.equal(swapped[row], z[other])]
        assert len(same) == 1
        assert same[0] != row
        sources += same
    assert sorted(sources) == list(range(len(z)))
    assert torch.equal(swapped, replacement(z, "resample", seed=4))
    assert not torch.equal(swapped, replacement(z, "resample", seed=5))


PUT_IN = {
    "zero": torch.zeros_like,
    "mean": lambda z: z.mean(dim=(0, 1)).expand_as(z),
    "resample": lambda z: replacement(z, "resample", seed=4),
}


@pytest.mark.parametrize("how", PUT_IN)
def test_the_ablated_head_has_the_values_put_in_by_hand(model, batch, z, how):
    """The mean is one vector over sequences and positions."""
    expected = by_hand(model, batch, 0, 3, PUT_IN[how](z)[:, :, 3])
    assert ablate_heads(model, batch, [(0, 3)], how, seed=4) == pytest.approx(expected)
    assert ablate_heads(model, batch, [], how) == pytest.approx(
        by_hand(model, batch, 0, 3, z[:, :, 3])
    )


def test_heads_of_two_layers_are_replaced_by_what_they_are_in_the_undisturbed_model(model, batch):
    """The later head's mean is not that of a model whose earlier head is gone."""
    with torch.no_grad():
        inputs = torch.from_numpy(batch.inputs.copy())
        _, cache = model.run_with_cache(inputs)
        means = [cache["z", layer][:, :, layer].mean(dim=(0, 1)) for layer in range(2)]

        def put(z, hook):
            layer = int(hook.name.split(".")[1])
            z[:, :, layer] = means[layer]
            return z

        logits = model.run_with_hooks(
            inputs, fwd_hooks=[(lambda name: name.endswith("hook_z"), put)]
        )
    targets = torch.from_numpy(batch.targets.copy())
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE).item()
    assert ablate_heads(model, batch, [(0, 0), (1, 1)], "mean")["loss"] == pytest.approx(expected)


def test_hooks_are_gone_afterwards(model, batch, tokens):
    before = model(tokens)
    ablation_sweep(model, batch, "zero")
    with pytest.raises(ConfigError):
        ablate_heads(model, batch, [(0, 0), (7, 0)])
    assert torch.equal(model(tokens), before)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_the_sweep_is_each_head_alone(model, batch):
    whole = ablate_heads(model, batch, [])
    sweep = ablation_sweep(model, batch, "resample", seed=1)
    assert sweep[["layer", "head"]].to_numpy().tolist() == [
        [layer, head] for layer in range(2) for head in range(4)
    ]
    for line in sweep.itertuples():
        alone = ablate_heads(model, batch, [(line.layer, line.head)], "resample", seed=1)
        assert line.loss_rise == pytest.approx(alone["loss"] - whole["loss"])
        assert line.accuracy_fall == pytest.approx(whole["accuracy"] - alone["accuracy"])


def test_row_scores_count_targets_and_answers_apart(model):
    inputs = np.arange(12).reshape(2, 6)
    targets, answers = np.full((2, 6), IGNORE), np.full((2, 6), IGNORE)
    targets[0, 2:4], answers[0, 1], answers[1, 5] = 3, 4, 5
    rows = row_scores(model, Batch(inputs, targets, answers))
    assert rows["targets"].tolist() == [2, 0]
    assert rows["answers"].tolist() == [1, 1]
    assert rows["loss"][1] == 0


def test_bad_input_is_refused(model, batch):
    with pytest.raises(
        ConfigError, match=r"no head 2\.0: the model has layers 0 to 1 with heads 0 to 3"
    ):
        ablate_heads(model, batch, [(2, 0)])
    with pytest.raises(ConfigError, match="no ablation 'men'; did you mean 'mean'"):
        ablate_heads(model, batch, [(0, 0)], "men")
    with pytest.raises(ConfigError, match="one sequence"):
        ablate_heads(model, batch.rows(0, 1), [(0, 0)], "resample")
    nothing = np.full_like(batch.inputs, IGNORE)
    with pytest.raises(ConfigError, match="no targets"):
        ablate_heads(model, Batch(batch.inputs, nothing), [])
    with pytest.raises(ConfigError, match="no answers"):
        ablate_heads(model, Batch(batch.inputs, batch.targets, nothing), [])
    with pytest.raises(ConfigError, match=r"batch is a ndarray, but must be a tasks\.Batch"):
        require_whole(batch.inputs)
    short = Batch(batch.inputs, batch.targets)
    object.__setattr__(
        short, "targets", batch.targets[:, :3]
    )  # the tests' own check of shapes refuses it in Batch
    with pytest.raises(ConfigError, match="The batch's targets have the shape"):
        ablate_heads(model, short, [(0, 0)])
    for wrong in (-7, model.cfg.d_vocab):
        with pytest.raises(
            ConfigError,
            match=f"The targets have ids from {wrong} to {wrong}, but the vocabulary is 0",
        ):
            ablate_heads(model, Batch(batch.inputs, np.full_like(batch.targets, wrong)), [(0, 0)])


# Together


def test_the_sets_are_as_large_and_their_losses_those_of_ablating_them(make_model, batch):
    model = make_model(n_layers=3)
    these = [(0, 1), (2, 0), (2, 3)]
    table = ablate_together(model, batch, these, controls=2, seed=3)
    assert table["heads"].tolist() == ["these", "random", "same layers", "random", "same layers"]
    assert table["n"].tolist() == [3] * 5
    right = ablate_heads(model, batch, these)
    assert table["loss"][0] == pytest.approx(right["loss"])
    assert table["loss_rise"][0] == pytest.approx(
        right["loss"] - ablate_heads(model, batch, [])["loss"]
    )


def test_the_head_that_knows_the_answers_is_found_by_its_absence(theorem_3_2, batch):
    located = locate_induction_heads(theorem_3_2, batch=batch)
    assert located["verdict"].tolist() == ["induction", ""]
    assert (~located["needed"]).tolist() == [not needed for needed in located["needed"]]
    table = ablate_together(theorem_3_2, batch, located)
    assert table["n"][0] == 1
    assert table["loss_rise"][0] > 10 * table["loss_rise_error"][0]
    assert np.isclose(table["loss_rise"][0], located["loss_rise"][0])
    with pytest.raises(ConfigError, match="no head is prefix-matching"):
        ablate_together(theorem_3_2, batch, located[located["head"] > 0])


def test_heads_may_be_an_array_or_lists_and_anything_else_is_refused(make_model, batch):
    model = make_model()
    given = [[0, 1], [1, 2], [0, 1]]
    tables = [
        ablate_together(model, batch, heads, controls=0) for heads in (given, np.array(given))
    ]
    assert [table["n"].tolist() for table in tables] == [[2], [2]]
    with pytest.raises(ConfigError, match=r"heads holds 'L0H1', but must be pairs"):
        ablate_together(model, batch, ["L0H1"])
    with pytest.raises(ConfigError, match=r"There is no head 0\.-1"):
        ablate_together(model, batch, [(0, -1)])
    with pytest.raises(ConfigError, match="controls is -1, but must be at least 0"):
        ablate_together(model, batch, given, controls=-1)


# Padding


def padded(batch, side):
    """Some rows cut short by 5, 10 or 15 tokens and padded with other ids, and the mask."""
    size = batch.inputs.shape[1]
    cut = np.array([0, 5, 10, 15])[np.arange(len(batch.inputs)) % 4]
    inputs, targets = np.full_like(batch.inputs, 3), np.full_like(batch.targets, IGNORE)
    mask = np.zeros_like(inputs)
    for row, less in enumerate(cut):
        at = slice(less, size) if side == "left" else slice(0, size - less)
        inputs[row, at], targets[row, at] = (
            batch.inputs[row, : size - less],
            batch.targets[row, : size - less],
        )
        mask[row, at] = 1
    return Batch(inputs, targets), mask


def test_padding_is_in_no_mean_on_either_side(model, batch):
    right, mask = padded(batch, "right")
    _, cache = model.run_with_cache(torch.from_numpy(right.inputs))
    mean = cache["z", 1][:, :, 2][torch.from_numpy(mask) == 1].mean(dim=0)
    expected = by_hand(model, right, 1, 2, mean)
    assert ablate_heads(model, right, [(1, 2)], attention_mask=mask) == pytest.approx(expected)
    assert ablate_heads(model, right, [(1, 2)]) != pytest.approx(expected)
    left, mask = padded(batch, "left")
    for how in ("zero", "mean", "resample"):
        one = ablation_sweep(model, right, how, attention_mask=padded(batch, "right")[1])
        other = ablation_sweep(model, left, how, attention_mask=mask)
        assert np.allclose(one.drop(columns="how"), other.drop(columns="how"))


def test_a_tasks_padding_is_known(make_model):
    task = IGSMTask(difficulty="mini", format="pairs", letters="ordered", ops="<=3", length=96)
    model = make_model(d_vocab=task.vocab_size, n_ctx=96, n_layers=1)
    model.trained_on = task
    drawn = task.batch(8, np.random.default_rng(0))
    real = drawn.inputs != task.language.ids["<pad>"]
    assert 0.2 < real.mean() < 0.9
    _, cache = model.run_with_cache(torch.from_numpy(drawn.inputs.copy()))
    mean = cache["z", 0][:, :, 1][torch.from_numpy(real)].mean(dim=0)
    assert ablate_heads(model, drawn, [(0, 1)]) == pytest.approx(by_hand(model, drawn, 0, 1, mean))


def test_a_shorter_row_gives_its_last_token_where_it_has_no_other(z):
    real = torch.arange(z.shape[1]) < torch.tensor([z.shape[1], 9])[torch.arange(len(z)) % 2, None]
    swapped, plain = replacement(z, "resample", 4, real=real), replacement(z, "resample", 4)
    for row in range(len(z)):
        [source] = [other for other in range(len(z)) if torch.equal(plain[row], z[other])]
        size = int(real[source].sum())
        assert torch.equal(swapped[row, :size], z[source, :size])
        assert torch.equal(swapped[row, size:], z[source, size - 1].expand_as(swapped[row, size:]))
