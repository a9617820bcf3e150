"""Attacks: reported sequences ask their question, right models stand, wrong ones fall, small worst
cases agree.
"""

import re
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
import torch

from ihlab import ModelConfig, Run, Transformer, kept
from ihlab.certify import attack, certify
from ihlab.certify.failure import ANSWER, EARLIER, QUERY, explained
from ihlab.interp.patterns_alone import PatternsAlone
from ihlab.model.conversion.llama import to_llama
from ihlab.theory.constructions import kv_shift_induction_head
from tasks import (
    ConfigError,
    InductionTask,
    MultiHopTask,
    TriggerTask,
)
from tests.certify.brute_force import in_float64, margins_of, small

SMALL = InductionTask(vocab_size=20, length=10, min_token=2)
QUICK = {"questions": 6, "restarts": 1, "sweeps": 1}


def untrained(task, **fields):
    """A random model with large weights, so that its margins differ by more than rounding."""
    cfg = ModelConfig(
        n_layers=2,
        d_model=16,
        n_heads=2,
        d_vocab=task.vocab_size,
        n_ctx=task.length,
        init_std=0.3,
        **fields,
    )
    model = Transformer(cfg)
    model.trained_on = task
    return model


def margin_of(model, tokens, answer):
    logits = model(torch.tensor([tokens]))[0, -1].detach()
    others = torch.cat([logits[:answer], logits[answer + 1 :]])
    return (logits[answer] - others.max()).item()


def draws_induction(task, tokens, answer):
    """Read a sequence as the induction task draws it, token by token."""
    follower, forced, scored = {}, None, None
    for t, token in enumerate(tokens):
        if token < task.min_token or (forced is not None and token != forced):
            return False
        after = follower.setdefault(token, set())
        if t and tokens[t - 1] in follower:
            follower[tokens[t - 1]].add(token)
        repeats = token in tokens[:t] and tokens[t - 1] != token
        scored = next(iter(after)) if forced is None and repeats and len(after) == 1 else None
        forced = scored
    return scored == answer


def follows_always(task, tokens, answer):
    """Return whether the answer, and nothing else, follows the query wherever it occurs before the
    end.
    """
    followers = {after for token, after in pairwise(tokens) if token == tokens[-1]}
    return followers == {answer} and min(tokens) >= task.min_token


@pytest.mark.parametrize(("support", "legal"), [("task", draws_induction), ("any", follows_always)])
def test_a_model_that_learned_nothing_falls_on_sequences_that_ask_the_question(support, legal):
    model = untrained(SMALL)
    result = attack(model, support=support, questions=8, restarts=2)
    table = result.table
    assert result.accuracy == 0
    assert result.sampled_accuracy == (table["sampled_margin"] > 0).mean()
    for row in table.itertuples():
        assert legal(SMALL, row.sampled, row.answer)
        assert legal(SMALL, row.worst, row.answer)
        assert row.worst[-1] == row.sampled[-1] == row.query
        assert row.sampled_margin == pytest.approx(
            margin_of(model, row.sampled, row.answer), abs=1e-4
        )
        assert row.margin == pytest.approx(margin_of(model, row.worst, row.answer), abs=1e-4)
        assert row.margin < row.sampled_margin
        assert model(torch.tensor([row.worst]))[0, -1].argmax().item() == row.mistaken_for
        assert row.worst[row.position : row.answer_position + 1] == [row.query, row.answer]
        assert row.in_task == draws_induction(SMALL, row.worst, row.answer)
    assert table["margin"].is_monotonic_increasing
    assert "8 sequences with a wrong answer" in result.verdict


def test_a_model_that_is_always_right_stands():
    task = InductionTask(vocab_size=10, length=10, min_token=0)
    model = kv_shift_induction_head(torch.eye(10), 10, sigma=0.05, slope=0.01, mask="strict")
    result = attack(model, task, support="any", questions=12, restarts=2, sweeps=2)
    assert result.accuracy == result.sampled_accuracy == 1
    assert not result.table["wrong"].any()
    assert result.verdict.startswith(
        "12 of 12 questions are answered rightly as drawn, and 12 in the worst sequence"
    )


def test_in_a_small_vocabulary_the_search_finds_the_worst_sequence_of_all():
    """By brute force over all sequences with this query and this answer."""
    task = InductionTask(vocab_size=6, length=6, min_token=0)
    model = untrained(task)
    result = attack(model, questions=6, restarts=10, sweeps=4)
    found, worst = result.table["margin"], []
    for row in result.table.itertuples():
        rows = [[*each, row.query] for each in product(range(6), repeat=5)]
        rows = torch.tensor([each for each in rows if draws_induction(task, each, row.answer)])
        with torch.no_grad():
            others = model(rows)[:, -1]
        own = others[:, row.answer].clone()
        others[:, row.answer] = -torch.inf
        worst.append((own - others.amax(dim=1)).min().item())
    assert (found >= np.array(worst) - 1e-4).all()
    assert np.isclose(found, worst, atol=1e-4).mean() >= 0.8


def test_the_search_finds_the_smallest_margin_that_a_certificate_names():
    task = InductionTask(vocab_size=7, length=6, min_token=0)
    model, effort = (
        small(0, d_vocab=7, positional="rope", init_std=0.5),
        {"restarts": 10, "sweeps": 4},
    )
    found = attack(model, task, support="any", questions=8, before_norm=True, **effort).table
    lowered, _ = margins_of(in_float64(model), found["worst"].tolist(), found["answer"].tolist())
    certified = certify(model, task, [6]).table.set_index(["query", "answer"])["bound"]
    smallest = found.join(certified, on=["query", "answer"])["bound"]
    assert (lowered >= smallest - 1e-4).all()
    assert np.isclose(lowered, smallest, atol=1e-4).mean() >= 0.8
    assert ((lowered > 0) == (found["margin"] > 0)).all()


def test_the_seed_decides_and_more_restarts_are_never_worse():
    model = untrained(SMALL)
    one, again, longer, other = (
        attack(model, **{**QUICK, **more}).table for more in ({}, {}, {"restarts": 3}, {"seed": 1})
    )
    pd.testing.assert_frame_equal(one, again)
    assert sorted(map(tuple, one["sampled"])) != sorted(map(tuple, other["sampled"]))
    first, more = (
        table.set_index(table["sampled"].map(tuple))["margin"] for table in (one, longer)
    )
    assert (more.reindex(first.index) <= first + 1e-5).all()


def test_how_a_model_fails_is_what_its_patterns_say():
    """Two layers of one head: 0.0 gave the answer's place to the token before it, 1.0 the query to
    the answer.
    """
    drawn, worst = np.zeros((2, 2, 1, 5, 5))
    roles = [{QUERY: 4, EARLIER: 1, ANSWER: 2}, {QUERY: 4, EARLIER: 2, ANSWER: 3}]
    drawn[0, 0, 2, 1], worst[0, 0, 3, :3] = 1.0, (0.7, 0.2, 0.1)
    drawn[1, 0, 4, 2], worst[1, 0, 4, 2:] = 0.9, (0.6, 0.25, 0.15)
    tokens = np.array([7, 8, 5, 6, 5])
    assert explained((drawn, worst), roles, tokens, None) == (
        "At the query, head 1.0 gives 0.25 instead of 0.90 of its attention to the answer, and 0.60 to the token that "
        "the answer follows; at the answer, head 0.0 gives 0.10 instead of 1.00 of its attention to the token that the "
        "answer follows, and 0.70 to token 7 at position 0."
    )
    same = explained((drawn, drawn), roles[:1] * 2, tokens, None)
    assert same == "No head loses much attention to what carries the question."


def test_the_patterns_are_those_of_the_worst_sequences():
    model = untrained(SMALL)
    result = attack(model, **QUICK)
    for question, row in enumerate(result.table.itertuples()):
        cache = model.run_with_cache(torch.tensor([row.worst]))[1]
        for layer in range(2):
            pattern = cache["pattern", layer][0, :, -1].detach()
            assert np.allclose(result.attention[question, layer], pattern, atol=1e-5)
    assert result.table["how"].str.contains(r"head \d\.\d gives").any()


def test_the_shipped_model_with_two_vanilla_layers_is_wrong_on_sequences_of_its_own_task():
    """Also converted to a model of transformers."""
    run, options = Run.open(kept.path("vanilla-2-layers")), {**QUICK, "questions": 2}
    falls = attack(run, **options)
    assert falls.sampled_accuracy == 1
    assert falls.accuracy == 0
    assert falls.table["in_task"].all()
    assert (falls.table["margin"] < -5).all()
    theirs = attack(to_llama(run.model()), run.config.task, **options).table
    assert np.allclose(falls.table["margin"], theirs["margin"], atol=1e-3)
    assert falls.table["worst"].tolist() == theirs["worst"].tolist()


def test_a_task_without_a_rule_can_be_attacked_in_any_sequence():
    task = TriggerTask(vocab_size=16, length=12, triggers=4)
    result = attack(untrained(task), support="any", **QUICK)
    assert result.table["in_task"].isna().all()
    assert result.verdict.endswith("whether the task could draw it is not known.")
    for row in result.table.itertuples():
        assert follows_always(SMALL, [token + 2 for token in row.worst], row.answer + 2)


@pytest.mark.parametrize(
    ("source", "options", "match"),
    [
        (
            untrained(MultiHopTask(vocab_size=13, length=16, max_hops=2)),
            {},
            "The task is 'multihop', but attack",
        ),
        (
            untrained(SMALL),
            {"questions": 0},
            "questions is 0, but must be an integer of at least 1",
        ),
        (
            untrained(SMALL),
            {"length": 11},
            "length is 11, but must be from 2 to the task's length, 10",
        ),
        (
            untrained(SMALL),
            {"length": 2},
            "Of 10240 sequences of the task 'induction', 0 have at position 1 a query",
        ),
        (
            Transformer(ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=9, n_ctx=8)),
            {},
            "give a task",
        ),
        (
            PatternsAlone(torch.ones(1, 1, 1, 2, 2).tril() / 2),
            {},
            "the worst sequences are found by running a model",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(source, options, match):
    with pytest.raises(ConfigError, match=re.escape(match)):
        attack(source, **options)
