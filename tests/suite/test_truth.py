"""The truth, derived again: by plain hooks, by the construction, and from the table of 3-grams."""

from functools import partial

import numpy as np
import pytest
import torch

from ihlab import suite
from ihlab.interp.prompt_pair import prompt_pair
from ihlab.measure.batches import EVAL_SEED, draw
from ihlab.suite.members import MEMBERS
from ihlab.suite.truth import SEED, _other_context, prompts
from tasks import ConfigError


@torch.no_grad()
def patched(model, tokens, source, layer, head, pair):
    """The mean logit difference on tokens with one head's z from the source, by a hook written out."""
    name = f"blocks.{layer}.attn.hook_z"
    _, cache = model.run_with_cache(source, names_filter=name)

    def replace(z, hook):
        z = z.clone()
        z[:, :, head] = cache[name][:, :, head]
        return z

    return pair.logit_difference(model.run_with_hooks(tokens, fwd_hooks=[(name, replace)])).item()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step"), [("induction-vanilla-2", None), ("induction-kv-shift-1", 292)]
)
def test_effects_and_accuracy_are_those_of_plain_hooks(name, step):
    model, found = suite.load(name, step=step), suite.truth(name, step=step)
    pair = prompt_pair(model.trained_on, 64, SEED, "key")
    at = partial(patched, model, pair=pair)
    with torch.no_grad():
        ends = [
            pair.logit_difference(model(tokens)).item() for tokens in (pair.clean, pair.corrupted)
        ]
    assert found["swing"] == pytest.approx(ends[0] - ends[1], rel=1e-4)
    for row in found["heads"].itertuples():
        there = at(pair.corrupted, pair.clean, row.layer, row.head) - ends[1]
        back = ends[0] - at(pair.clean, pair.corrupted, row.layer, row.head)
        assert (row.effect, row.reverse) == pytest.approx((there, back), abs=1e-3)
        assert row.true == (max(abs(there), abs(back)) >= 0.1 * abs(found["swing"]))
    batch = draw(model.trained_on, EVAL_SEED, "eval", 0, 512)
    with torch.no_grad():
        said = model(torch.from_numpy(batch.inputs)).argmax(dim=-1).numpy()
    asked = batch.answers >= 0
    assert found["accuracy"]["accuracy"] == pytest.approx((said == batch.answers)[asked].mean())


def test_every_task_has_prompts_by_default_and_depo_those_of_its_answer():
    for name in ("3-gram-vanilla-1", "recall-vanilla-1", "2-hop-vanilla-2", "depo-k-shift-3"):
        pair = prompts(MEMBERS[name].task)
        assert (pair.answer != pair.other).all()
        assert (pair.clean != pair.corrupted).any(dim=1).all()
    with pytest.raises(
        ConfigError, match="corrupt is 'key', but a corrupted prompt of task 'depo'"
    ):
        prompts(MEMBERS["depo-k-shift-3"].task, "key")


def test_prompts_of_3_grams_have_two_contexts_of_the_table():
    task = MEMBERS["3-gram-vanilla-1"].task
    drawn, pair = task.batch(500, np.random.default_rng(1)), _other_context(task)
    asked = np.argwhere(drawn.answers >= 0)
    known = {
        tuple(drawn.inputs[row, at - 1 : at + 1].tolist()): drawn.answers[row, at]
        for row, at in asked
    }
    assert ((pair.clean != pair.corrupted).sum(dim=1) == 1).all()
    rows = np.arange(len(pair.clean))
    for tokens, answers in ((pair.clean, pair.answer), (pair.corrupted, pair.other)):
        contexts = zip(
            *(tokens[rows, pair.position - back].tolist() for back in (1, 0)), strict=True
        )
        assert [known[context] for context in contexts] == answers.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["2-hop", "3-gram", "recall", "triggers", "period-2"])
def test_it_is_known_for_every_task(task, built):
    name = f"{task}-kv-shift-1"
    root = built(name)
    found = suite.truth(name, seed=2, root=root)
    assert (found["step"], found["seed"], bool(found["control"])) == (14, 2, task == "period-2")
    assert np.isfinite(found["heads"]["effect"]).all()


def test_the_truth_is_about_a_number_of_hops():
    """On prompts of two hops a head matters that does nothing after one hop."""
    two, one = (suite.truth("2-hop-vanilla-2", hops=hops) for hops in (None, 1))
    assert (two["hops"], one["hops"]) == (2, 1)
    effects = [
        abs(found["heads"].set_index(["layer", "head"]).loc[(1, 0), "fraction"])
        for found in (two, one)
    ]
    assert effects[0] > 0.1, "it is true"
    assert effects[1] < 0.02
    pair = prompts(suite.load("2-hop-vanilla-2").trained_on, hops=2)
    for tokens, asked, answer in zip(pair.clean.tolist(), pair.position, pair.answer, strict=True):
        position = asked
        for _ in range(tokens[0]):  # the hop token says how many
            position = max(i for i in range(1, position) if tokens[i] == tokens[position]) + 1
        assert (tokens[0], tokens[position]) == (2, answer)


def test_before_training_no_node_is_true():
    assert not suite.truth("2-hop-vanilla-2", step=0)["heads"]["true"].any()
