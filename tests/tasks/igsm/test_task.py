"""Batches of iGSM: what is asked where, which rows are drawn, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import tasks.igsm.task
from tasks import IGNORE, ConfigError, Task
from tasks.codec import from_plain, to_plain
from tasks.igsm import IGSMTask

TOY = {"difficulty": "toy", "ops": "<=4", "format": "compact", "length": 128}
FLAT = {"kind": "igsm_flat", "length": 640}
kinds = st.sampled_from(
    [TOY, TOY | {"format": "natural", "length": 200}, FLAT, TOY | {"split": "test"}]
)
seeds = st.integers(0, 2**32)


# What is asked


@given(kinds, seeds, st.sampled_from(["solution", "all"]))
def test_targets_are_the_next_tokens_of_the_solution_or_of_all(fields, seed, loss):
    task = IGSMTask(**fields, loss=loss)
    batch = task.batch(4, np.random.default_rng(seed))
    problems = task.prompts(4, np.random.default_rng(seed))
    assert batch.inputs.shape == batch.targets.shape == (4, task.length)
    for i, (row, targets) in enumerate(
        zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)
    ):
        words = [task.language.vocabulary[token] for token in problems.tokens[i]]
        sol, end = words.index("<sol>"), words.index("<eos>")
        assert row == problems.tokens[i, :-1].tolist()
        first = sol if loss == "solution" else 0
        assert [t for t, target in enumerate(targets) if target != IGNORE] == list(
            range(first, end)
        )
        assert targets[first:end] == problems.tokens[i, first + 1 : end + 1].tolist()
        assert set(words[end + 1 :]) <= {"<pad>"}
        assert words.count("<bos>") == 1


@given(kinds, seeds)
def test_answers_are_results_and_the_final_value(fields, seed):
    """The number before each ; or . of the solution, and the one after <ans>."""
    task = IGSMTask(**fields)
    batch = task.batch(4, np.random.default_rng(seed))
    for row, answers in zip(batch.inputs, batch.answers.tolist(), strict=True):
        words = [*task.decode(row), "<eos>"]
        sol = words.index("<sol>")
        results = [
            t
            for t in range(sol, len(words) - 1)
            if words[t + 1] in (";", ".") and words[t].isdigit()
        ]
        results += [t for t in range(sol, len(words)) if words[t - 1] == "<ans>"]
        expected = {t - 1: task.encode(words[t])[0] for t in results}
        assert {t: answer for t, answer in enumerate(answers) if answer != IGNORE} == expected


def test_prompts_can_be_of_other_operations_and_another_split():
    task = IGSMTask(**TOY)
    problems = task.prompts(50, np.random.default_rng(0), ops=5, split="test")
    again = IGSMTask(**TOY | {"ops": "5", "split": "test"}).prompts(50, np.random.default_rng(0))
    assert np.array_equal(problems.tokens, again.tokens)
    assert set(problems.ops.tolist()) == {5}
    for i in range(50):
        prompt, solution = problems.prompt(i), problems.solution(i)
        words = task.decode(np.concatenate([prompt, solution]))
        assert words == task.decode(problems.tokens[i])
        assert (words[0], words[len(prompt) - 1], words[-1]) == ("<bos>", "<sol>", "<eos>")


# Which rows are drawn


def test_longer_problems_are_drawn_again_with_as_many_operations():
    """Rows that fit in either length are the same, and the law of the operations does not change."""
    task, roomy = IGSMTask(**TOY | {"length": 100}), IGSMTask(**TOY)
    cut, whole = (t.prompts(5000, np.random.default_rng(0)) for t in (task, roomy))
    fits = whole.size <= 101
    assert 0.95 < fits.mean() < 1
    assert np.array_equal(cut.tokens[fits], whole.tokens[fits, :101])
    assert cut.size.max() <= 101
    assert np.array_equal(cut.ops, whole.ops)
    assert chisquare(np.bincount(cut.ops)[1:], [5000 * p / 16 for p in (7, 5, 3, 1)]).pvalue > 1e-3


@pytest.mark.parametrize(("difficulty", "ops"), [("med", 40), ("hard", 48), ("toy", 20)])
def test_the_largest_number_of_operations_is_reached(difficulty, ops):
    task = IGSMTask(difficulty=difficulty, ops=str(ops), split="test", length=1500)
    assert set(task.batch(10, np.random.default_rng(0)).groups["ops"].tolist()) == {ops}


@pytest.mark.parametrize("kind", ["igsm", "igsm_flat"])
def test_rules_say_what_changed(kind):
    """Flat problems have no unneeded sentences, and their rows never changed."""
    task = IGSMTask(kind=kind)
    assert to_plain(task).get("rule", 1) == task.rule == {"igsm": 2, "igsm_flat": 1}[kind]
    if kind == "igsm":
        with pytest.raises(
            ConfigError, match=r"rule 1 of the task 'igsm', which draws them by rule 2 now"
        ):
            from_plain(Task, {**to_plain(task), "rule": 1})


# A row for a person


def test_show_puts_sentences_and_steps_on_lines_and_answers_in_brackets():
    task = IGSMTask(**TOY)
    batch = task.batch(3, np.random.default_rng(0))
    *shown, note = task.show(batch, 2).splitlines()
    assert "[brackets]" in note
    words = task.decode(batch.inputs[2])
    assert " ".join(shown).replace("[", "").replace("]", "").split() == words
    marked = [word.strip("[]") for word in " ".join(shown).split() if word.startswith("[")]
    assert marked == task.decode(batch.answers[2][batch.answers[2] != IGNORE])
    assert len(shown) == words.count(".") + 4  # bos, question, sol, final value


# Bad input


def test_a_length_in_which_few_problems_fit_is_refused_with_one_that_would_do():
    with pytest.raises(
        ConfigError,
        match=r"IGSMTask.length is 80, which fits only 9\d% of the problems; 9\d would fit 99%",
    ):
        IGSMTask(**TOY | {"length": 80}).batch(1, np.random.default_rng(0))
    with pytest.raises(ConfigError, match=r"length is 4, which fits only 0%"):
        IGSMTask(**TOY | {"length": 4}).batch(1, np.random.default_rng(0))


def test_an_empty_split_is_refused(monkeypatch):
    """Where no problem is found in as many tries as a row has, it is said rather than tried for
    ever.
    """
    monkeypatch.setattr(tasks.igsm.task, "FITTING", 0.0)
    task = IGSMTask(**TOY | {"length": 4})
    with pytest.raises(ConfigError, match="finds no problem: the split is empty"):
        task.batch(1, np.random.default_rng(0))
