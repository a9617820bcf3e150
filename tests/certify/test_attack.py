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
from ihlab.certify.rules import rule_for
from ihlab.interp.patterns_alone import PatternsAlone
from ihlab.model.conversion.llama import to_llama
from ihlab.theory.constructions import kv_shift_induction_head
from tasks import (
    ConfigError,
    DepoTask,
    InductionTask,
    MQARTask,
    MultiHopTask,
    NGramTask,
    TriggerTask,
)

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


def right(task):
    model = kv_shift_induction_head(
        torch.eye(task.vocab_size), task.length, sigma=0.05, slope=0.01, mask="strict"
    )
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


def in_support(task, tokens, answer):
    """Ask the rule, which test_rules.py holds against everything that the task draws."""
    rule = rule_for(task, "task")
    return bool(rule.drawable(np.array([tokens[rule.begin :]]), np.array([answer]))[0])


CASES = {
    "induction": (SMALL, "task", draws_induction),
    "induction, any": (SMALL, "any", follows_always),
    "recall": (
        MQARTask(vocab_size=17, length=14, pairs=3, bos=True, power_a=1.0),
        "task",
        in_support,
    ),
    "hops": (MultiHopTask(vocab_size=13, length=16, max_hops=2, alphabet=8), "task", in_support),
    "n-grams": (
        NGramTask(vocab_size=13, length=16, order=3, table_size=20, bos=True),
        "task",
        in_support,
    ),
}


@pytest.mark.parametrize(("task", "support", "legal"), CASES.values(), ids=CASES)
def test_a_model_that_learned_nothing_falls_on_sequences_that_ask_the_question(
    task, support, legal
):
    model = untrained(task)
    result = attack(model, support=support, questions=8, restarts=2)
    table = result.table
    assert result.accuracy == 0
    assert result.sampled_accuracy == (table["sampled_margin"] > 0).mean()
    for row in table.itertuples():
        assert legal(task, row.sampled, row.answer)
        assert legal(task, row.worst, row.answer)
        assert row.worst[-1] == row.sampled[-1] == row.query
        assert row.sampled_margin == pytest.approx(
            margin_of(model, row.sampled, row.answer), abs=1e-4
        )
        assert row.margin == pytest.approx(margin_of(model, row.worst, row.answer), abs=1e-4)
        assert row.margin < row.sampled_margin
        assert model(torch.tensor([row.worst]))[0, -1].argmax().item() == row.mistaken_for
        if not isinstance(task, NGramTask):
            assert row.worst[row.answer_position] == row.answer
            assert row.answer_position == row.position + 1
    assert table["margin"].is_monotonic_increasing
    drawn = (
        [draws_induction(task, row.worst, row.answer) for row in table.itertuples()]
        if task is SMALL
        else True
    )
    assert (table["in_task"] == drawn).all()
    assert "8 sequences with a wrong answer" in result.verdict


@pytest.mark.parametrize("support", ["task", "any"])
def test_a_model_that_is_always_right_stands(support):
    task = InductionTask(vocab_size=14, length=12, min_token=0)
    result = attack(right(task), support=support, questions=12, restarts=3)
    assert result.accuracy == result.sampled_accuracy == 1
    assert not result.table["wrong"].any()
    assert result.verdict.startswith(
        "12 of 12 questions are answered rightly as drawn, and 12 in the worst sequence"
    )


@pytest.mark.parametrize("attention", ["vanilla", "kv_shift"])
def test_in_a_small_vocabulary_the_search_finds_the_worst_sequence_of_all(attention):
    """By brute force over all sequences with this query and this answer."""
    task = InductionTask(vocab_size=6, length=6, min_token=0)
    model = untrained(task, attention=attention)
    result = attack(model, questions=10, restarts=12)
    found, worst = result.table["margin"], []
    for row in result.table.itertuples():
        rows = [[*each, row.query] for each in product(range(6), repeat=5)]
        rows = torch.tensor([each for each in rows if draws_induction(task, each, row.answer)])
        logits = model(rows)[:, -1].detach()
        own = logits[:, row.answer].clone()
        logits[:, row.answer] = -torch.inf
        worst.append((own - logits.amax(dim=1)).min().item())
    assert (found >= np.array(worst) - 1e-4).all()
    assert np.isclose(found, worst, atol=1e-4).mean() >= 0.8


@pytest.mark.parametrize("positional", ["none", "rope"])
def test_the_search_finds_the_smallest_margin_that_a_certificate_names(positional):
    task = InductionTask(vocab_size=8, length=8, min_token=0)
    fields = {"positional": positional, "attention": "kv_shift", "mlp": "none", "init_std": 0.5}
    model = Transformer(ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=8, n_ctx=8, **fields))
    found = attack(model, task, support="any", questions=12, restarts=12, before_norm=True).table
    certified = certify(model, task, [8]).table.set_index(["query", "answer"])["bound"]
    smallest = found.join(certified, on=["query", "answer"])["bound"]
    assert (found["lowered"] >= smallest - 1e-4).all()
    assert np.isclose(found["lowered"], smallest, atol=1e-4).mean() >= 0.8
    assert ((found["lowered"] > 0) == (found["margin"] > 0)).all()


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


CLAUSE = re.compile(
    r"at the (query|answer), head (\d)\.(\d) gives (\S+) instead of (\S+) of its attention to (the .*?), and (\S+) to "
    r"(.*?)\.?$",
    re.IGNORECASE,
)


def test_how_a_model_fails_is_what_its_patterns_say():
    model = untrained(SMALL)
    result, clauses = attack(model, **QUICK), 0
    for question, row in enumerate(result.table.itertuples()):
        patterns, places = [], []
        for tokens in (row.sampled, row.worst):
            cache = model.run_with_cache(torch.tensor([tokens]))[1]
            patterns.append(np.stack([cache["pattern", layer][0].detach() for layer in range(2)]))
            key = tokens.index(row.query)
            places.append(
                {
                    "the query itself": -1,
                    "the answer": key + 1,
                    "the token that the answer follows": key,
                }
            )
        assert np.allclose(result.attention[question], patterns[1][:, :, -1], atol=1e-5)
        falls = [p[:, :, -1][:, :, [*at.values()]] for p, at in zip(patterns, places, strict=True)]
        largest = (falls[0] - falls[1]).max()
        assert row.how.startswith("At the query") == (largest >= 0.05)
        for clause in re.findall(r"[^;]*head \d[^;]*", row.how):
            where, layer, head, has, had, role, instead, target = CLAUSE.match(
                clause.strip()
            ).groups()
            query = "the answer" if where == "answer" else "the query itself"
            old, new = (
                p[int(layer), int(head), at[query]] for p, at in zip(patterns, places, strict=True)
            )
            assert float(had) == pytest.approx(old[places[0][role]], abs=0.006)
            assert float(has) == pytest.approx(new[places[1][role]], abs=0.006)
            if where != "answer":
                assert float(had) - float(has) == pytest.approx(largest, abs=0.011)
            others = np.delete(new, places[1][role])
            assert float(instead) == pytest.approx(others.max(), abs=0.006)
            token, place = (
                map(int, re.findall(r"\d+", target))
                if "token " in target and "position" in target
                else (0, 0)
            )
            assert token == 0 or (row.worst[place] == token and new[place] == others.max())
            clauses += 1
    assert clauses >= 4


def test_a_run_and_a_model_of_transformers_are_attacked_alike():
    run = Run.open(kept.path("2-hop-vanilla-2"))
    ours = attack(run, **QUICK).table
    theirs = attack(to_llama(run.model()), run.config.task, **QUICK).table
    assert np.allclose(ours["margin"], theirs["margin"], atol=1e-3)
    assert ours["worst"].tolist() == theirs["worst"].tolist()


def test_the_shipped_model_with_two_vanilla_layers_is_wrong_on_sequences_of_its_own_task():
    falls = attack(Run.open(kept.path("vanilla-2-layers")), questions=3, sweeps=1)
    assert falls.sampled_accuracy == 1
    assert falls.accuracy == 0
    assert falls.table["in_task"].all()
    assert (falls.table["margin"] < -5).all()


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
            untrained(DepoTask()),
            {},
            "support is 'task', but it is not known which sequences the task 'depo' can draw",
        ),
        (untrained(SMALL), {"support": "all"}, "There is no support 'all'"),
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
