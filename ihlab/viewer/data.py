"""Data of a page: every head's patterns on some sequences at every checkpoint, and the model's
predictions.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

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
from ihlab.viewer.training import metrics_at, training_data
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
    - `field`: a square around these paths; for an induction task with the loss of Theorem 3.4 at its
      points; null without `path`.

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
    chosen = _rows(source, shown, tokens, text, rows)
    predictions = Predictions(text)
    training = NO_TRAINING
    if isinstance(source, Run):
        training = training_data(source, shown.steps)
    allowed = MEGABYTES if megabytes is None else megabytes
    most = round(allowed * 1e6) - PAGE
    cells, of_steps, scored = _read(shown, chosen, predictions, most)
    heads = of_steps[0]["heads"]
    n_layers, n_heads = len(heads), len(heads[0])
    group = 1
    if "alpha" in of_steps[0]:
        group = n_heads // len(of_steps[0]["alpha"][0])
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
        "alpha": None,
        "beta": None,
        **training,
    }
    headers, asked, sizes, routes = [], [], [], []
    for row, of_row in zip(chosen, cells, strict=False):  # those beyond the limit are not read
        header = {"tokens": row.names, "stripe": induction_stripe(row.ids, shown.strict)}
        targets = predictions.targets(row) if of_row[0].predicted else None
        headers.append(header)
        asked.append(targets)
        sizes.append(list(map(_Cell.size, of_row)))
        sizes[-1][-1] += len(json.dumps([header, targets]))  # a row that fits has the last step
        routes.append(list(map(_Cell.routes_size, of_row)))
    frame = len(json.dumps([data, of_steps]))
    if megabytes is None and sizes[0][-1] > most - frame:
        most = round(ONE_ROW * 1e6) - PAGE
    with_routes, n_rows, places = what_fits(sizes, routes, most - frame)
    left_out = []
    if any(map(sum, routes)) and not with_routes:
        left_out.append("key routes")
    if n_rows < len(chosen):
        left_out.append(f"{len(chosen) - n_rows} of {len(chosen)} rows")
    if len(places) < len(of_steps):
        left_out.append(f"{len(of_steps) - len(places)} of {len(of_steps)} checkpoints")
    said = ""
    if left_out:
        said = f"Left out, for the size of the page: {', '.join(left_out)}."
    data |= {"left_out": said, **_by_step(of_steps, places)}
    if isinstance(source, Run):
        data["metrics"] = metrics_at(source, data["steps"])
    for header, targets, of_row in list(zip(headers, asked, cells, strict=False))[:n_rows]:
        header.update(_row_data(of_row, places, with_routes, targets))
    return {**data, "rows": headers[:n_rows]}


@dataclass
class _Cell:
    """One sequence at one step, packed."""

    causal: bool
    panels: dict[str, str]
    norms: dict[str, str]
    predicted: dict[str, str]

    def size(self) -> int:
        texts = [*self.norms.values(), *self.predicted.values(), self.panels["pattern"]]
        return sum(map(len, texts))

    def routes_size(self) -> int:
        return sum(map(len, self.panels.values())) - len(self.panels["pattern"])


def _rows(source: Any, shown: Opened, tokens: Any, text: Any, rows: int) -> list[TokenRow]:
    if tokens is None:
        if isinstance(source, Run):
            source.require_task()
        if shown.task is None or isinstance(shown.task, StoredTask):
            raise ConfigError(
                "tokens are not given, but only a run and its model have sequences of their own."
            )
        return held_out_rows(shown.task, rows, text)
    return given_rows(tokens, text, shown.vocabulary)


def _read(
    shown: Opened, rows: list[TokenRow], predictions: Predictions, most: int
) -> tuple[list[list[_Cell]], list[dict[str, Any]], str]:
    """Return every sequence at every step [row][step]; `steps`, `heads`, `alpha` and `beta` of
    `view_data` at each step; and what was scored.

    Sequences that do not fit in `most` characters at the first step are not read at later steps,
    and not scored.
    """
    cells: list[list[_Cell]] = [[] for _ in rows]
    ids = [row.ids for row in rows]
    of_steps, scored = [], ""
    for step in shown.steps:
        source = shown.model(step)
        read = reader(source, ids)
        readings = []
        for number, of_row in enumerate(cells):
            reading = read(number, ids[number])
            readings.append(reading)
            of_row.append(_cell(reading, rows[number], predictions))
        while len(cells) > 1 and sum(row[-1].size() for row in cells) > most:
            cells.pop()
        scores, scored = _scores(source, readings[: len(cells)], ids[: len(cells)])
        of_step = {"steps": step, "heads": tagged(scores)}
        if readings[0].alpha is not None:
            of_step |= {"alpha": readings[0].alpha, "beta": readings[0].beta}
        of_steps.append(of_step)
    return cells, of_steps, scored


def _scores(
    source: Any, readings: list[Shown], ids: list[Int[np.ndarray, " _"]]
) -> tuple[Scores, str]:
    if isinstance(source, HeadModel):
        with suppress(ConfigError):  # its context is too short for a repeat, or it is not causal
            length = min(source.tokens.length, LONGEST_PROBE)
            tokens = source.probe_rows(PREFIX_REPEATS, 16, length, None, 0)
            return scores_of_probe(source, tokens), "random tokens, repeated"
    return scores_of_rows(list(map(_read_from, readings)), ids), "these rows"


def _read_from(reading: Shown) -> np.ndarray:
    """Return the pattern used for head scores: the weight of each token's value, with beta's gauge
    fixed.
    """
    pattern = reading.panels["pattern"]
    if reading.beta is None:
        return pattern
    effective = []
    for layer, beta in zip(torch.from_numpy(pattern), reading.beta, strict=True):
        effective.append(effective_pattern(layer, gauge_fixed(torch.tensor(beta))))
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
    panels = {kind: quantised(panel, causal) for kind, panel in reading.panels.items()}
    norms = {name: packed(norm.astype("<f4")) for name, norm in reading.norms.items()}
    predicted: dict[str, str] = {}
    if reading.logits is not None:
        predicted = predictions.packed(reading.logits, row)
    return _Cell(causal, panels, norms, predicted)


def _row_data(
    cells: list[_Cell], places: list[int], with_routes: bool, targets: dict[str, Any] | None
) -> dict[str, Any]:
    data = _by_step(list(map(vars, cells)), places)
    panels = _by_step(data["panels"])
    if not with_routes:
        panels = {"pattern": panels["pattern"]}
    predicted: dict[str, Any] | None = None
    if targets is not None:
        predicted = _by_step(data["predicted"]) | targets
    return {
        "causal": all(data["causal"]),
        "panels": panels,
        "norms": _by_step(data["norms"]),
        "predictions": predicted,
    }


def _by_step(of_steps: list[dict[str, Any]], places: list[int] | None = None) -> dict[str, Any]:
    """Return each entry's values at the steps at `places`, by default at all."""
    values: dict[str, Any] = {}
    for place in range(len(of_steps)) if places is None else places:
        for name, value in of_steps[place].items():
            values.setdefault(name, []).append(value)
    return values


def induction_stripe(ids: Int[np.ndarray, " pos"], strict: bool = False) -> list[list[int]]:
    """Return the pairs [query, key] of a perfect induction head: the key follows a copy of the
    query's token.

    { (q, j + 1) : j < q, x_j = x_q },  without (q, q) if the mask is strict, so that a token does
    not see itself.
    """
    last_key = -1 if strict else 0
    return follows(torch.from_numpy(ids)[None])[0].tril(last_key).nonzero().tolist()
