"""Data of a page: every head's patterns on some sequences at every checkpoint, and the model's
predictions.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ihlab.interp.head_model import HeadModel
from ihlab.interp.patterns import effective_pattern, gauge_fixed
from ihlab.measure.heads import follows
from ihlab.measure.probe import LONGEST_PROBE, PREFIX_REPEATS
from ihlab.runtime.settings import own_settings
from ihlab.training.run import Run
from ihlab.viewer.packing import packed, quantised, what_fits
from ihlab.viewer.predictions import Predictions
from ihlab.viewer.sources import Opened, Shown, opened, reader
from ihlab.viewer.tags import TAGS, Scores, scores_of_probe, scores_of_rows, tagged
from ihlab.viewer.tokens import TokenRow, given_rows, held_out_rows, text_by
from ihlab.viewer.training import training_data
from tasks import StoredTask
from tasks.config import ConfigError, require

MOST_STEPS = 20
ROWS, MOST_ROWS = 4, 100
MEGABYTES = 3.0
ONE_ROW = 20.0
"""Maximum megabytes of a page if its first sequence at the last step alone exceeds `MEGABYTES`."""
PAGE = 100_000  # characters of a page without data, with a margin
NO_TRAINING: dict[str, Any] = {"metrics": None, "path": None, "field": None}


@own_settings()
def view_data(
    source: Any,
    tokens: Any = None,
    words: Any = None,
    checkpoints: int = MOST_STEPS,
    rows: int = ROWS,
    megabytes: float | None = None,
    title: str | None = None,
) -> dict[str, Any]:
    """Return the data of a page as JSON types: s steps, l layers, h heads, g key/value heads, n
    positions.

    - `title`, `about`: headings; `left_out`: what does not fit on the page; `n_layers`, `n_heads`,
      `group`: l, h, h/g;
    - `steps` [s]; `metrics`, each [s]: loss, accuracy, accuracy at first repeats, null if not
      measured; `metrics` is null if the source is not a run;
    - `rows`: for each sequence, `tokens` [n], the text at each position; `stripe`: the pairs of
      `induction_stripe`; `causal`: false if a query sees later keys; `panels`: `pattern`, and for
      shifted models `key1` .. `keyW` (`score_routes`), each [s] texts of `quantised` [l, h];
      `norms`: `value`, and for shifted values `raw`, each [s] texts of float32 [l, h, n];
      `predictions`, null without logits: `top`, `chance` [s] texts of uint32 and uint16 [n, 5], the
      most likely tokens as indices into `words`, and their probabilities times 65535, `loss` [s]
      texts of float32 [n], `target` [n] indices into `words` or -1, and `asked`: "target" or "next
      token";
    - `words`: texts of ids; `heads` [s][l][h]: `scores` (in the order of `score_names`) and `tags`,
      from `tagged`;
      `scored`: the tokens that heads are scored on;
    - `alpha`, `beta` [s, l, g, window], multiplied into patterns by the page; null for a vanilla
      model, for weights per channel, and if tokens are also mixed elsewhere;
    - `path`: alpha1 and beta1 [l, g, evaluation] over the whole training; null unless the model has
      both;
    - `field`: the square around these paths, for an induction task with Theorem 3.4's loss on it;
      null without `path`.

    The arguments and the errors are those of `ihlab.viewer.view`.
    """
    require(
        checkpoints >= 2,
        f"checkpoints is {checkpoints}, but must be at least 2: the first and the last.",
    )
    require(1 <= rows <= MOST_ROWS, f"rows is {rows}, but must be 1 to {MOST_ROWS}.")
    shown = opened(source, checkpoints)
    if words is None:
        words = getattr(source, "tokenizer", None)
    text = text_by(words, shown.task)
    chosen = _rows(source, shown, tokens, words, text, rows)
    predictions = Predictions(chosen, text)
    training = NO_TRAINING
    if isinstance(source, Run):
        training = training_data(source, shown.steps)
    allowed = MEGABYTES if megabytes is None else megabytes
    most = round(allowed * 1e6) - PAGE
    cells, heads, scored = _read(shown, chosen, predictions, most)
    n_layers = len(heads[0])
    n_heads = len(heads[0][0])
    alpha = [cell.alpha for cell in cells[0]]
    beta = [cell.beta for cell in cells[0]]
    group = 1
    if alpha[0]:
        group = n_heads // len(alpha[0][0])
    data = {
        "title": (title or shown.title)
        .encode(errors="backslashreplace")
        .decode(),  # a file name may be invalid text
        "about": shown.about or f"{n_layers} layers of {n_heads} heads",
        "n_layers": n_layers,
        "n_heads": n_heads,
        "group": group,
        "words": predictions.words,
        "score_names": list(TAGS.values()),
        "scored": scored,
        "left_out": "",
        "alpha": None,
        "beta": None,
    }
    stripes = [induction_stripe(row.ids, shown.strict) for row in chosen]
    frame = len(json.dumps([data, heads, training, stripes, [row.names for row in chosen]]))
    sizes = [list(map(_Cell.size, row)) for row in cells]
    routes = [list(map(_Cell.routes_size, row)) for row in cells]
    if megabytes is None and sizes[0][-1] > most - frame:
        most = round(ONE_ROW * 1e6) - PAGE
    with_routes, n_rows, steps = what_fits(sizes, routes, most - frame)

    def shown_of(values: list[Any]) -> list[Any]:
        return [values[step] for step in steps]

    for name, values in (training["metrics"] or {}).items():
        training["metrics"][name] = shown_of(values)
    left_out = []
    if any(map(sum, routes)) and not with_routes:
        left_out.append("key routes")
    if n_rows < len(chosen):
        left_out.append(f"{len(chosen) - n_rows} of {len(chosen)} rows")
    if len(steps) < len(shown.steps):
        left_out.append(f"{len(shown.steps) - len(steps)} of {len(shown.steps)} checkpoints")
    if left_out:
        data["left_out"] = f"Left out, for the size of the page: {', '.join(left_out)}."
    if alpha[0]:
        data |= {"alpha": shown_of(alpha), "beta": shown_of(beta)}
    rows_of_page = zip(chosen[:n_rows], cells, stripes, strict=False)
    return {
        **data,
        "steps": shown_of(shown.steps),
        **training,
        "heads": shown_of(heads),
        "rows": [
            {"stripe": stripe, **_row_data(row, shown_of(of_row), with_routes, predictions)}
            for row, of_row, stripe in rows_of_page
        ],
    }


@dataclass
class _Cell:
    """One sequence at one step, packed."""

    causal: bool
    alpha: list[Any] | None
    beta: list[Any] | None
    panels: dict[str, str] = field(default_factory=dict)
    norms: dict[str, str] = field(default_factory=dict)
    predicted: dict[str, str] = field(default_factory=dict)

    def size(self) -> int:
        return sum(
            map(len, [*self.norms.values(), *self.predicted.values(), self.panels["pattern"]])
        )

    def routes_size(self) -> int:
        return sum(map(len, self.panels.values())) - len(self.panels["pattern"])


def _rows(
    source: Any, shown: Opened, tokens: Any, words: Any, text: Any, rows: int
) -> list[TokenRow]:
    if tokens is None:
        if isinstance(source, Run):
            source.require_task()
        if shown.task is None or isinstance(shown.task, StoredTask):
            raise ConfigError(
                "tokens are not given, but only a run and its model have sequences of their own."
            )
        named = isinstance(words, list | tuple)
        token_rows = held_out_rows(shown.task, 1 if named else rows, text)
        if named:
            size = len(token_rows[0].ids)
            require(
                len(words) == size,
                f"words has {len(words)} names, but the sequence has {size} positions.",
            )
            token_rows = [replace(token_rows[0], names=list(map(str, words)))]
    else:
        token_rows = given_rows(tokens, words, text, shown.vocabulary)
    for row in token_rows:
        require(
            shown.n_ctx is None or len(row.ids) <= shown.n_ctx,
            f"The sequence has {len(row.ids)} positions, but must have 1 to n_ctx={shown.n_ctx}.",
        )
    return token_rows


def _read(
    shown: Opened, rows: list[TokenRow], predictions: Predictions, most: int
) -> tuple[list[list[_Cell]], list[list[list[dict[str, Any]]]], str]:
    """Return every sequence at every step [row][step], each head's scores and tags at each step,
    and what was scored.

    Sequences that do not fit in `most` characters at the first step are not read at later steps,
    and not scored.
    """
    cells: list[list[_Cell]] = [[] for _ in rows]
    heads, probe, said = [], None, ""
    ids = [row.ids for row in rows]
    for step in shown.steps:
        source = shown.model(step)
        if step == shown.steps[0]:
            probe = _probe(source)
        read = reader(source, ids)
        readings = [read(number, row.ids) for number, row in enumerate(rows[: len(cells)])]
        for reading, row, of_row in zip(readings, rows, cells, strict=False):
            of_row.append(_cell(reading, row, predictions))
        while len(cells) > 1 and sum(row[-1].size() for row in cells) > most:
            cells.pop()
        scores, said = _scores(source, probe, readings[: len(cells)], ids[: len(cells)])
        heads.append(tagged(scores))
    return cells, heads, said


def _probe(source: Any) -> Tensor | None:
    if isinstance(source, HeadModel):
        with suppress(ConfigError):  # its context is too short for a repeat
            return source.probe_rows(
                PREFIX_REPEATS, 16, min(source.tokens.length, LONGEST_PROBE), None, 0
            )
    return None


def _scores(
    source: Any, probe: Tensor | None, readings: list[Shown], ids: list[Int[np.ndarray, " _"]]
) -> tuple[Scores, str]:
    if probe is not None:
        with suppress(
            ConfigError
        ):  # a bridge's model may not be causal: then only its sequences can be scored
            return scores_of_probe(source, probe), "random tokens, repeated"
    return scores_of_rows([_read_from(reading) for reading in readings], ids), "these rows"


def _read_from(reading: Shown) -> np.ndarray:
    """Return the pattern used for head scores: the weight of each token's value, with beta's gauge
    fixed.
    """
    pattern = reading.panels["pattern"]
    if reading.beta is None:
        return pattern
    layers = zip(torch.from_numpy(pattern), reading.beta, strict=True)
    effective = [
        effective_pattern(layer, gauge_fixed(torch.tensor(beta))) for layer, beta in layers
    ]
    return torch.stack(effective).numpy()


def _cell(reading: Shown, row: TokenRow, predictions: Predictions) -> _Cell:
    pattern = reading.panels["pattern"]
    n = pattern.shape[-1]
    require(
        n == len(row.ids), f"The patterns have {n} tokens, but the sequence has {len(row.ids)}."
    )
    for layer, head, query, _ in np.argwhere(~np.isfinite(pattern)):
        raise ConfigError(f"The pattern of head {layer}.{head} is not finite at query {query}.")
    causal = not np.triu(pattern, 1).any()
    cell = _Cell(causal, reading.alpha, reading.beta)
    cell.panels = {kind: quantised(panel, causal) for kind, panel in reading.panels.items()}
    cell.norms = {name: packed(norm.astype("<f4")) for name, norm in reading.norms.items()}
    if reading.logits is not None:
        cell.predicted = predictions.packed(reading.logits, row)
    return cell


def _row_data(
    row: TokenRow, cells: list[_Cell], with_routes: bool, predictions: Predictions
) -> dict[str, Any]:
    panels = _by_step([cell.panels for cell in cells])
    if not with_routes:
        panels = {"pattern": panels["pattern"]}
    predicted: dict[str, Any] | None = None
    if cells[0].predicted:
        predicted = _by_step([cell.predicted for cell in cells]) | predictions.targets(row)
    return {
        "tokens": row.names,
        "causal": all(cell.causal for cell in cells),
        "panels": panels,
        "norms": _by_step([cell.norms for cell in cells]),
        "predictions": predicted,
    }


def _by_step(of_steps: list[dict[str, str]]) -> dict[str, list[str]]:
    return {name: [of_step[name] for of_step in of_steps] for name in of_steps[0]}


def induction_stripe(ids: Int[np.ndarray, " pos"], strict: bool = False) -> list[list[int]]:
    """Return the pairs [query, key] of a perfect induction head: the key follows a copy of the
    query's token.

    { (q, j + 1) : j < q, x_j = x_q },  without (q, q) if the mask is strict, so that a token does
    not see itself.
    """
    last_key = -1 if strict else 0
    return follows(torch.from_numpy(ids)[None])[0].tril(last_key).nonzero().tolist()
