"""Attention to operands: which heads fetch them when a model writes the solution of an iGSM problem."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from ihlab.interp.patterns import effective_patterns, raw_patterns
from ihlab.measure.heads import mean_attention
from ihlab.model.modes import evaluated
from ihlab.model.transformer import Transformer
from tasks import IGSMTask
from tasks.config import require
from tasks.igsm import Problems
from tasks.igsm.words import LETTERS

_LETTERS = frozenset(LETTERS)
KINDS = ("letter", "value")


class Fetch(NamedTuple):
    """A token of a solution that is a copy of an earlier one.

    - `kind`   "letter": an operand's letter in `b = 4 + a = 4 + 3 = 0`, fetched from where it was given (`X Y a ;`)
               or used before; "value": its number, fetched from the end of the clause that computed it;
    - `query`  the position that predicts it, the one before it;
    - `keys`   the positions of what it is a copy of.
    """

    kind: str
    query: int
    keys: tuple[int, ...]


def fetches(tokens: Sequence[str]) -> list[Fetch]:
    """Return every operand of a row's solution, in either format, in order; tokens before SOL are ignored."""
    require("<sol>" in tokens, "The row has no '<sol>': it holds no solution.")
    seen: dict[str, list[int]] = {}  # letter -> its positions
    value: dict[str, int] = {}  # letter -> the position of its value
    found = []
    start = tokens.index("<sol>") + 1
    for at in range(start, len(tokens)):
        if tokens[at] in (";", ".", "<ans>", "<eos>"):
            found += _of_clause(tokens, start, at, seen, value)
            start = at + 1
    return found


def _of_clause(
    tokens: Sequence[str], start: int, stop: int, seen: dict[str, list[int]], value: dict[str, int]
) -> list[Fetch]:
    """Return the operands of the tokens start .. stop - 1, and record their letters and values."""
    equals = [at for at in range(start, stop) if tokens[at] == "="]
    found = []
    if len(equals) > 1:  # symbol = operands = numbers [= value]
        for operand in range(equals[0] + 1, equals[1]):
            letter, number = tokens[operand], operand + equals[1] - equals[0]
            if letter in value:
                found.append(Fetch("letter", operand - 1, tuple(seen[letter])))
                found.append(Fetch("value", number - 1, (value[letter],)))
    for at in range(start, stop):
        if tokens[at] in _LETTERS:
            seen.setdefault(tokens[at], []).append(at)
    if equals and tokens[equals[0] - 1] in _LETTERS:
        value[tokens[equals[0] - 1]] = stop - 1
    return found


@evaluated
@torch.no_grad()
def operand_attention(model: Transformer, task: IGSMTask, problems: Problems) -> pd.DataFrame:
    """Attention of each head to an operand's source just before the operand is written, on true solutions.

    Columns: layer, head, pattern ("raw": whose key is matched; "effective": whose value is read), kind (of `Fetch`),
    attention (summed over the sources, averaged over all operands) and even (the same for uniform attention over all
    tokens so far). Raises `ConfigError` for problems without operands, and rows longer than n_ctx.
    """
    rows = torch.from_numpy(problems.tokens[:, : int(problems.size.max())]).to(model.embed.weight.device)
    places = {kind: torch.zeros(*rows.shape, rows.shape[1], dtype=torch.bool, device=rows.device) for kind in KINDS}
    even: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for row, ids in enumerate(problems.tokens):
        for kind, query, keys in fetches(task.decode(ids)):
            places[kind][row, query, list(keys)] = True
            even[kind].append(len(keys) / (query + 1))
    require(bool(even["value"]), "No solution has an operand: ask for problems with more operations.")
    _, cache = model.run_with_cache(rows)
    table = []
    for pattern, read in (("raw", raw_patterns(cache)), ("effective", effective_patterns(cache, fix_gauge=True))):
        for kind in KINDS:
            attention = mean_attention(read, places[kind]).cpu().numpy()
            table += [
                {"layer": layer, "head": head, "pattern": pattern, "kind": kind, "attention": attention[layer, head]}
                | {"even": np.mean(even[kind])}
                for layer, head in np.ndindex(attention.shape)
            ]
    return pd.DataFrame(table)


def value_head(attention: pd.DataFrame) -> tuple[int, int]:
    """Return the layer and head that read operands' values most, from a table of `operand_attention`."""
    table = attention.query("pattern == 'effective' and kind == 'value'")
    best = table["attention"].to_numpy().argmax()
    return int(table["layer"].iloc[best]), int(table["head"].iloc[best])


@evaluated
@torch.no_grad()
def head_patterns(
    model: Transformer, tokens: Int[np.ndarray, " pos"], layer: int, head: int
) -> dict[str, Float[np.ndarray, "query key"]]:
    """Return the pattern of a head on a row, "raw" and "effective"; one of them if the two are the same."""
    _, cache = model.run_with_cache(torch.from_numpy(tokens.copy())[None].to(model.embed.weight.device))
    every = raw_patterns(cache), effective_patterns(cache, fix_gauge=True)
    raw, effective = (patterns[layer, 0, head].cpu().numpy() for patterns in every)
    return {"raw": raw} if np.array_equal(raw, effective) else {"raw": raw, "effective": effective}
