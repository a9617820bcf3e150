"""Attention to sources: which heads fetch the tokens that an iGSM solution copies from the prompt
or from itself.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from ihlab.interp.patterns import effective_patterns, raw_patterns
from ihlab.measure.heads import mean_attention
from ihlab.model.transformer import Transformer
from ihlab.runtime.modes import in_eval_mode
from tasks import IGSMTask
from tasks.config import require
from tasks.igsm import Problems
from tasks.igsm.definition import Parameter
from tasks.igsm.words import read_pair

from .solution import is_symbol, read_header

COPY_KINDS = ("sentence", "letter", "value")
"""Kinds of copies: the values of `Fetch.kind`."""


class Fetch(NamedTuple):
    """A token of a solution that is a copy of an earlier token.

    - `kind`   "sentence": the constant in `b = 4 + a = 4 + 3 = 0`, or an operand that is a pair, fetched from the
               prompt's sentence about the step's parameter; "letter": an operand's letter, fetched
               from where it was defined (`X Y a ;`) or used before, or a pair that the sentence
               does not name; "value": an operand's number, fetched from the end of the clause that
               computed it;
    - `query`  the position that predicts the token, right before it;
    - `keys`   the positions of the tokens that it copies.
    """

    kind: str
    query: int
    keys: tuple[int, ...]


def fetches(tokens: Sequence[str]) -> list[Fetch]:
    """Return every constant and operand of a sequence's solution, in order, in any format."""
    require("<sol>" in tokens, "The sequence has no '<sol>', so it holds no solution.")
    stated = _sentences(tokens[: tokens.index("<sol>")])
    positions: dict[str, list[int]] = {}  # the positions of each symbol
    value: dict[str, int] = {}  # the position of each symbol's value
    copies: list[Fetch] = []
    start, sentence = tokens.index("<sol>") + 1, range(0)
    for end in range(start, len(tokens)):
        if tokens[end] in (";", ".", "<ans>", "<eos>"):
            header = _header(tokens[start:end])
            sentence = sentence if header is None else stated.get(header, range(0))
            copies += _of_clause(tokens, start, end, sentence, positions, value)
            start = end + 1
    return copies


def _sentences(prompt: Sequence[str]) -> dict[Parameter, range]:
    """Return each parameter that a prompt states, with the positions of its expression."""
    expressions: dict[Parameter, range] = {}
    start = int(bool(prompt) and prompt[0] == "<bos>")
    for end in range(start, len(prompt)):
        if prompt[end] == ".":
            match prompt[start:end]:
                case ["The", "number", "of", "each", owner, "'s", owned, "equals", *_]:
                    expressions[owner, owned] = range(start + 8, end)
                case [owner, owned, "=", *_]:
                    expressions[owner, owned] = range(start + 3, end)
                case [pair, "=", *_] if parameter := read_pair(pair):
                    expressions[parameter] = range(start + 2, end)
            start = end + 1
    return expressions


def _header(tokens: Sequence[str]) -> Parameter | None:
    """Return the parameter that the tokens name, or None if they name no parameter."""
    headers = (read_header(tokens, format) for format in ("natural", "compact", "pairs"))
    return next((header[0] for header in headers if header), None)


def _of_clause(
    tokens: Sequence[str],
    start: int,
    stop: int,
    sentence: range,
    positions: dict[str, list[int]],
    value: dict[str, int],
) -> list[Fetch]:
    """Return the copies among the tokens start .. stop - 1, and record their symbols and values."""
    equals = [place for place in range(start, stop) if tokens[place] == "="]
    copies = []
    if equals:  # symbol = operands [= numbers] [= value]
        after = equals[1] if len(equals) > 1 else stop
        for operand in range(equals[0] + 1, after):
            word, number = tokens[operand], operand + after - equals[0]
            sources = tuple(place for place in sentence if tokens[place] == word)
            if sources and (word.isdigit() or is_symbol(word)):
                copies.append(Fetch("sentence", operand - 1, sources))
            elif word in value:
                copies.append(Fetch("letter", operand - 1, tuple(positions[word])))
            if word in value:
                copies.append(Fetch("value", number - 1, (value[word],)))
    for place in range(start, stop):
        if is_symbol(tokens[place]):
            positions.setdefault(tokens[place], []).append(place)
    if equals and is_symbol(tokens[equals[0] - 1]):
        value[tokens[equals[0] - 1]] = stop - 1
    return copies


@in_eval_mode
@torch.no_grad()
def operand_attention(model: Transformer, task: IGSMTask, problems: Problems) -> pd.DataFrame:
    """Return the attention of each head to the source of a copy, at the position that predicts it,
    on true solutions.

    Columns: layer, head, pattern ("raw": whose key is matched; "effective": whose value is read),
    kind (of `Fetch`), attention (summed over the sources, averaged over all copies of that kind)
    and even (the same for uniform attention over all tokens so far). Raises `ConfigError` for
    problems without operands, and for sequences longer than n_ctx.
    """
    rows = torch.from_numpy(problems.tokens[:, : int(problems.size.max())]).to(
        model.embed.weight.device
    )
    nowhere = torch.zeros(*rows.shape, rows.shape[1], dtype=torch.bool, device=rows.device)
    places = {kind: nowhere.clone() for kind in COPY_KINDS}
    even: dict[str, list[float]] = {kind: [] for kind in COPY_KINDS}
    for row, ids in enumerate(problems.tokens):
        for kind, query, keys in fetches(task.decode(ids)):
            places[kind][row, query, list(keys)] = True
            even[kind].append(len(keys) / (query + 1))
    require(
        bool(even["value"]), "No solution has an operand: ask for problems with more operations."
    )
    _, cache = model.run_with_cache(rows)
    read = {"raw": raw_patterns(cache), "effective": effective_patterns(cache, fix_gauge=True)}
    table = []
    for pattern, kind in product(read, filter(even.get, COPY_KINDS)):
        attention = mean_attention(read[pattern], places[kind]).cpu().numpy()
        for (layer, head), value in np.ndenumerate(attention):
            table.append((layer, head, pattern, kind, value, np.mean(even[kind])))
    columns = ["layer", "head", "pattern", "kind", "attention", "even"]
    return pd.DataFrame(table, columns=columns)


@in_eval_mode
@torch.no_grad()
def head_patterns(
    model: Transformer, tokens: Int[np.ndarray, " pos"], layer: int, head: int
) -> dict[str, Float[np.ndarray, "query key"]]:
    """Return the "raw" and "effective" patterns of a head on a sequence, or only one of them if
    they are equal.
    """
    _, cache = model.run_with_cache(
        torch.from_numpy(tokens.copy())[None].to(model.embed.weight.device)
    )
    every = raw_patterns(cache), effective_patterns(cache, fix_gauge=True)
    raw, effective = (patterns[layer, 0, head].cpu().numpy() for patterns in every)
    return {"raw": raw} if np.array_equal(raw, effective) else {"raw": raw, "effective": effective}
