"""Choices in true solutions: made by models that always write the truth, never, or the same."""

import numpy as np
import pytest
import torch
from torch import nn

from figures.table4.choices import choices
from tasks import IGSMTask

PAIRS = IGSMTask(difficulty="mini", format="pairs", letters="parts", ops="<=3", length=100)
TASKS = [
    PAIRS,
    IGSMTask(difficulty="toy", format="compact", ops="<=4", length=120),
    IGSMTask(ops="<=3", length=600),
    IGSMTask(kind="igsm_flat", difficulty="toy", format="compact", length=300),
]


class Writes(nn.Module):
    """Logits that put all weight on given next tokens of the problems."""

    def __init__(self, problems, following):
        super().__init__()
        self.embed = nn.Embedding(1, 1)
        self.rows, self.following = map(torch.from_numpy, (problems.tokens, following))

    def forward(self, tokens, return_type):
        width = tokens.shape[1]
        row = (self.rows[:, None, :width] == tokens).all(dim=-1).int().argmax(dim=0)
        return nn.functional.one_hot(self.following[row, :width], 3000).float()


def next_tokens(problems):
    return np.pad(problems.tokens[:, 1:], ((0, 0), (0, 1)))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.kind} {task.format}")
def test_the_true_solution_is_planned_and_looked_up(task):
    problems = task.prompts(40, np.random.default_rng(0))
    assert choices(Writes(problems, next_tokens(problems)), task, problems).to_numpy().all()


def test_any_parameter_that_can_come_next_is_planned():
    """`c = a + b`: b may come first as well as a; c may not, and a twice may not."""
    row = "<bos> Cruiser/AppleCrate = 3 . Cruiser/PearCrate = 4 . Cruiser/Crates ? <sol> {} <eos>"
    a, b, total = "Cruiser/AppleCrate", "Cruiser/PearCrate", "Cruiser/Crates"
    true = f"{a} ; {a} = 3 . {b} ; {b} = 4 . {total} ; {total} = {a} + {b} = 3 + 4 = 0 . <ans> 0"
    tokens = PAIRS.encode(row.format(true))[None]
    size = np.array([tokens.shape[1]])
    problems = type(PAIRS.prompts(1, np.random.default_rng(0)))(
        tokens=tokens,
        answers=tokens[:, 1:],
        prompt_size=np.array([PAIRS.decode(tokens[0]).index("<sol>") + 1]),
        size=size,
        ops=np.array([3]),
    )

    words = np.array(PAIRS.decode(tokens[0][problems.prompt_size[0] - 1 :]))
    places = problems.prompt_size - 1 + np.flatnonzero(np.isin(words, ["<sol>", "."]))

    def planned(*starts):
        following = next_tokens(problems)
        following[0, places[:3]] = PAIRS.encode(" ".join(starts))
        return bool(choices(Writes(problems, following), PAIRS, problems)["planned"].item())

    assert planned(a, b, total)
    assert planned(b, b, total), "after a, which the true solution has, b comes"
    assert not planned(total, b, total)
    assert not planned(a, a, total)
    assert not planned(a, b, b)
