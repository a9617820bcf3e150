"""The truth, derived again: by TransformerLens, by the construction, and from the table of 3-grams."""

import numpy as np
import pytest
import torch
from transformer_lens.patching import get_act_patch_attn_head_out_all_pos

from ihlab import suite
from ihlab.interp.prompt_pair import prompt_pair
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.suite.members import MEMBERS
from ihlab.suite.truth import SEED, _other_context, prompts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step"), [("recall-attention-only-2", None), ("induction-kv-shift-1", 292)]
)
@torch.no_grad()
def test_effects_and_accuracy_are_those_of_transformer_lens(name, step):
    model, found = suite.load(name, step=step), suite.truth(name, step=step)
    pair = prompt_pair(model.trained_on, 64, SEED, "key")
    ends = [pair.logit_difference(model(each)).item() for each in (pair.clean, pair.corrupted)]
    assert found["swing"] == pytest.approx(ends[0] - ends[1], rel=1e-4)

    def patched(tokens, source):
        _, cache = model.run_with_cache(source)
        patch = get_act_patch_attn_head_out_all_pos
        return patch(model, tokens, cache, pair.logit_difference).flatten().numpy()

    effect = patched(pair.corrupted, pair.clean) - ends[1]
    reverse = ends[0] - patched(pair.clean, pair.corrupted)
    heads = found["heads"]
    np.testing.assert_allclose(heads[["effect", "reverse"]].T, [effect, reverse], atol=1e-3)
    true = np.maximum(abs(effect), abs(reverse)) >= 0.1 * abs(found["swing"])
    assert heads["true"].tolist() == true.tolist()
    batch = draw(model.trained_on, EVAL_SEED, "eval", 0, 512)
    said = model(torch.from_numpy(batch.inputs)).argmax(dim=-1).numpy()
    asked = batch.answers >= 0
    assert found["accuracy"]["accuracy"] == pytest.approx((said == batch.answers)[asked].mean())


def test_every_task_has_prompts():
    for name in MEMBERS:
        pair = prompts(MEMBERS[name].task)
        assert (pair.answer != pair.other).all()
        assert (pair.clean != pair.corrupted).any(dim=1).all()


def test_prompts_of_3_grams_have_two_contexts_of_the_table():
    task = MEMBERS["3-gram-vanilla-1"].task
    drawn, pair = task.batch(500, np.random.default_rng(1)), _other_context(task)
    known = {}
    for row, at in np.argwhere(drawn.answers >= 0):
        known[tuple(drawn.inputs[row, at - 1 : at + 1].tolist())] = drawn.answers[row, at]
    assert ((pair.clean != pair.corrupted).sum(dim=1) == 1).all()
    rows = np.arange(len(pair.clean))
    for tokens, answers in ((pair.clean, pair.answer), (pair.corrupted, pair.other)):
        before, last = (tokens[rows, pair.position - back].tolist() for back in (1, 0))
        contexts = zip(before, last, strict=True)
        assert [known[context] for context in contexts] == answers.tolist()


def test_the_truth_is_about_a_number_of_hops():
    """On prompts of two hops a head matters that does nothing after one hop."""
    two, one = (suite.truth("2-hop-vanilla-2", hops=hops) for hops in (None, 1))
    assert (two["hops"], one["hops"]) == (2, 1)
    n = two["heads"].query("layer == 1 and head == 0").index.item()
    assert abs(two["heads"]["fraction"][n]) > 0.1, "it is true"
    assert abs(one["heads"]["fraction"][n]) < 0.02
    pair = prompts(suite.load("2-hop-vanilla-2").trained_on, hops=2)
    for tokens, asked, answer in zip(pair.clean.tolist(), pair.position, pair.answer, strict=True):
        position = asked
        for _ in range(tokens[0]):  # the hop token says how many
            position = max(i for i in range(1, position) if tokens[i] == tokens[position]) + 1
        assert (tokens[0], tokens[position]) == (2, answer)


def test_before_training_no_node_is_true():
    assert not suite.truth("2-hop-vanilla-2", step=0)["heads"]["true"].any()
