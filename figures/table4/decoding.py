"""Greedy decoding of iGSM problems, and the verdicts on the decoded solutions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from ihlab.model.transformer import Transformer
from tasks import IGSMTask
from tasks.config import require
from tasks.igsm import Problems
from tasks.igsm.problem import Problem

from .verify import ERRORS, verify

ROWS = 256
"""Maximum number of problems that are decoded together."""


def solve(model: Transformer, task: IGSMTask, problems: Problems) -> list[list[str]]:
    """Decode each prompt greedily, up to and including EOS.

    Prompts of equal length are decoded together without padding, because a shift would mix padding
    into the first keys and values. A solution that does not end within the task's length is cut
    off. Raises `ConfigError` for a model whose n_ctx is shorter than the task's sequences, or whose
    vocabulary is smaller than the task's.
    """
    cfg, end = model.cfg, task.language.ids["<eos>"]
    require(
        cfg.n_ctx >= task.length and cfg.d_vocab >= task.vocab_size,
        f"The model has n_ctx={cfg.n_ctx} and d_vocab={cfg.d_vocab}, but the task needs at least "
        f"{task.length} and {task.vocab_size}.",
    )
    device = model.embed.weight.device
    written: dict[int, list[str]] = {}
    for size in np.unique(problems.prompt_size):
        same = np.flatnonzero(problems.prompt_size == size)
        for rows in np.array_split(same, -(-len(same) // ROWS)):
            prompts = torch.from_numpy(problems.tokens[rows, :size]).to(device)
            tokens = (
                model.generate(prompts, task.length - int(size), stop=end)[:, size:].cpu().numpy()
            )
            written |= {
                int(row): _ended(task.decode(ids)) for row, ids in zip(rows, tokens, strict=True)
            }
    return [written[row] for row in range(len(problems.tokens))]


@torch.no_grad()
def probabilities(
    model: Transformer, task: IGSMTask, prompt: Int[np.ndarray, " pos"], solution: Sequence[str]
) -> Float[np.ndarray, " token"]:
    """Return the model's probability of each token of a solution, given the prompt and the tokens
    before it.
    """
    written = task.encode(" ".join(solution))
    ids = torch.from_numpy(np.concatenate([prompt, written])).to(model.embed.weight.device)
    every = model(ids[None])[0, len(prompt) - 1 : -1].softmax(-1)
    return every.gather(-1, ids[len(prompt) :, None])[:, 0].cpu().numpy()


def judge(task: IGSMTask, problems: Problems, solutions: Sequence[Sequence[str]]) -> pd.DataFrame:
    """Judge each solution, one row per problem.

    Columns: ops; `lenient`, `final`, `strict` and `minimal` (strict, and no unnecessary parameters)
    as in `verify.Verdict`; `unnecessary`, a count of steps; `errors`, a count of all errors; and a
    count for each class of errors.
    """
    rows = []
    for row, written in enumerate(solutions):
        prompt = task.decode(problems.prompt(row))
        verdict = verify(Problem.parse(prompt, task.language.modulus, task.flat), written)
        judged: dict[str, Any] = {"ops": int(problems.ops[row])}
        for name in ("lenient", "final", "strict", "minimal", "unnecessary"):
            judged[name] = getattr(verdict, name)
        judged["errors"] = len(verdict.errors)
        rows.append(judged | {name: verdict.errors.count(name) for name in ERRORS})
    return pd.DataFrame(rows)


def _ended(tokens: list[str]) -> list[str]:
    return tokens[: tokens.index("<eos>") + 1] if "<eos>" in tokens else tokens
