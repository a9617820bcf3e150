"""A model's next-token predictions in true iGSM solutions, where it must plan and where it must
look up.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch

from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode
from tasks import IGSMTask
from tasks.igsm import Problems
from tasks.igsm.definition import Parameter
from tasks.igsm.problem import Problem
from tasks.igsm.words import JOINT

from .operands import fetches
from .solution import read_header, split

ROWS = 64
"""Maximum number of problems in one forward pass."""

_NAMES = {"natural": (1, 3), "compact": (0, 1), "pairs": (0,)}
"""Positions of the words of a step's parameter within the step."""


@in_eval_mode
@torch.no_grad()
def choices(model: Transformer, task: IGSMTask, problems: Problems) -> pd.DataFrame:
    """Judge the most likely next token wherever a true solution plans or looks up, one row per
    problem.

    Compared models are judged at the same positions, after the prompt and correct steps, so that an
    earlier error does not hide a later one. A column is True where every choice of its kind is
    right:

    - `planned`    each step begins with a needed parameter that is not known yet and whose operands are known. Any
                   such parameter is right; if it has two words, the second is judged after the true
                   first one;
    - `looked up`  each token that is copied from the prompt's sentence about the step's parameter
      (`fetches`).

    Raises `ConfigError` for sequences longer than n_ctx.
    """
    device, rows = model.embed.weight.device, []
    for problem_rows in np.array_split(
        np.arange(len(problems.tokens)), -(-len(problems.tokens) // ROWS)
    ):
        longest = int(problems.size[problem_rows].max())
        logits = model(
            torch.from_numpy(problems.tokens[problem_rows, :longest]).to(device),
            return_type="logits",
        )
        for row, ids in zip(
            problem_rows.tolist(), logits.argmax(dim=-1).cpu().numpy(), strict=True
        ):
            likeliest, tokens = (
                task.decode(ids),
                task.decode(problems.tokens[row, : problems.size[row]]),
            )
            problem = Problem.parse(
                task.decode(problems.prompt(row)), task.language.modulus, task.flat
            )
            copies = [fetch.query for fetch in fetches(tokens) if fetch.kind == "sentence"]
            rows.append(
                {
                    "planned": all(
                        likeliest[position - 1] in right
                        for position, right in _headers(problem, tokens)
                    ),
                    "looked up": all(likeliest[query] == tokens[query + 1] for query in copies),
                }
            )
    return pd.DataFrame(rows)


def _headers(problem: Problem, tokens: Sequence[str]) -> Iterator[tuple[int, set[str]]]:
    """Yield the position of each word that names a step's parameter, and the set of words that
    are right in its place.
    """
    start, known = list(tokens).index("<sol>") + 1, set[Parameter]()
    places = _NAMES[problem.format]
    wanted = problem.definitions.keys() if problem.flat else problem.necessary
    for step in split(tokens[start:], ".")[:-1]:
        header = read_header(split(step, ";")[0], problem.format)
        assert header is not None, "a true solution can be read"
        ready = [
            parameter
            for parameter in wanted
            if parameter not in known and known.issuperset(problem.definitions[parameter].operands)
        ]
        for word, place in enumerate(places):
            right = [parameter for parameter in ready if word == 0 or parameter[0] == header[0][0]]
            yield (
                start + place,
                {
                    JOINT.join(names) if problem.format == "pairs" else names[word]
                    for names in right
                },
            )
        known.add(header[0])
        start += len(step) + 1
