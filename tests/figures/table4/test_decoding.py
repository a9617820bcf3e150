"""Solving: a model that knows the solutions solves all, and what is taken from them is missed."""

import dataclasses

import numpy as np
import pytest
import torch

from figures.table4.decoding import judge, probabilities, solve
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from tasks import ConfigError, IGSMTask

TASK = IGSMTask(difficulty="toy", format="compact", ops="<=4", length=120)


class Oracle(Transformer):
    """Writes each problem's true solution, and padding or stops after it as `generate` does."""

    def know(self, problems):
        self.rows = {
            tuple(problems.prompt(i)): problems.solution(i) for i in range(len(problems.tokens))
        }
        self.calls = []
        return self

    def generate(self, tokens, max_new_tokens, stop=None, pad=None):
        self.calls.append((tuple(tokens.shape), max_new_tokens))
        found = [self.rows[tuple(row)][:max_new_tokens] for row in tokens.tolist()]
        longest = max(map(len, found))
        filled = [np.concatenate([row, np.full(longest - len(row), stop)]) for row in found]
        return torch.cat([tokens, torch.from_numpy(np.stack(filled))], dim=1)


@pytest.fixture(scope="module")
def problems():
    return TASK.prompts(60, np.random.default_rng(0), split="test")


def oracle(problems, n_ctx=120):
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=TASK.vocab_size, n_ctx=n_ctx)
    return Oracle(cfg).know(problems)


def test_the_truth_is_right_in_every_sense(problems):
    model = oracle(problems)
    solutions = solve(model, TASK, problems)
    assert solutions == [
        TASK.decode(problems.solution(i)) for i in range(60)
    ]  # in the order of the problems
    judged = judge(TASK, problems, solutions)
    assert judged[["lenient", "final", "strict", "minimal"]].all(axis=None)
    assert judged[["errors", "unnecessary"]].eq(0).all(axis=None)
    assert judged["ops"].tolist() == problems.ops.tolist()
    assert len(model.calls) == len(set(problems.prompt_size))  # one for each length of a prompt
    assert all(length + new == TASK.length for (_, length), new in model.calls)


def test_a_solution_that_does_not_end_is_of_the_wrong_format(problems):
    shorter = dataclasses.replace(TASK, length=int(problems.size.max()) - 2)
    longest = problems.size == problems.size.max()
    judged = judge(TASK, problems, solve(oracle(problems), shorter, problems))
    assert judged["format"][longest].eq(1).all()
    assert judged["strict"][problems.size <= shorter.length].all()


def test_a_model_too_small_for_the_task(problems):
    with pytest.raises(
        ConfigError, match=r"n_ctx=64 and d_vocab=\d+, but the task needs at least 120"
    ):
        solve(oracle(problems, n_ctx=64), TASK, problems)


def test_probabilities_are_of_each_token_after_those_before_it(problems):
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_vocab=TASK.vocab_size, n_ctx=120)
    model, prompt, ids = Transformer(cfg, seed=0), problems.prompt(0), problems.solution(0)
    given = probabilities(model, TASK, prompt, TASK.decode(ids))
    assert len(given) == len(ids)
    for token in (0, len(ids) - 1):
        before = torch.from_numpy(np.concatenate([prompt, ids[:token]]))
        likely = model(before[None])[0, -1].softmax(-1)
        assert given[token] == pytest.approx(likely[ids[token]].item(), abs=1e-6)
