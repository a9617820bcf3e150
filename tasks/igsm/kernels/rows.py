"""Sequences of token ids: draws problems until one fits, then writes it out. Compiled."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.igsm.kernels.bits import draw, shuffle
from tasks.igsm.kernels.language import (
    ANS,
    BOS,
    EOS,
    MOST_TOKENS,
    SOL,
    Page,
    Words,
    put,
    put_question,
    put_sentence,
    put_solution,
)
from tasks.igsm.kernels.problem import Draft, Outline, draw_flat_problem, draw_problem, no_draft
from tasks.igsm.kernels.split import row_in_split
from tasks.igsm.kernels.structure import Limits

MOST_TRIES = 20_000  # per row


class Wanted(NamedTuple):
    """Constraints on the problems to draw.

    `exact`: exactly `ops` operations. Otherwise their number is the smaller of two draws from U{1 .. ops}, or a single
    draw if `even` is set; flat problems have any number from 4 to `ops`. `test`: use the test split. `in_order`,
    `by_pair`: letters as in `put_solution`. `most_tokens`: maximum length.
    """

    flat: bool
    ops: int
    exact: bool
    even: bool
    test: bool
    in_order: bool
    by_pair: bool
    modulus: int
    most_tokens: int


@numba.njit
def _write(
    outline: Outline,
    draft: Draft,
    text: np.ndarray,
    is_result: np.ndarray,
    words: Words,
    wanted: Wanted,
    stream: np.ndarray,
) -> tuple[int, int]:
    """Step K: write the tokens. Returns the numbers of tokens up to SOL and to EOS, and marks the results after SOL."""
    solution, page = draft.solution, Page(text, np.zeros(1, np.int64), words, draft.names)
    sentences = np.arange(outline.n_sentences)
    shuffle(sentences, outline.n_sentences, stream)
    put(page, BOS)
    for parameter in sentences:
        put_sentence(page, parameter, draft.equations)
    asked = draw(stream, outline.n_steps) if wanted.flat else outline.n_steps - 1
    put_question(page, solution.parameter[asked])
    put(page, SOL)
    n_prompt = page.end[0]
    is_result[n_prompt:] = False
    put_solution(
        page, is_result, outline.n_steps, solution, wanted.in_order, wanted.by_pair, stream
    )
    if not wanted.flat:
        put(page, ANS)
        put(page, words.number + solution.value[outline.n_clauses - 1])
        is_result[page.end[0] - 1] = True
    put(page, EOS)
    return n_prompt, page.end[0]


def _compiled(sources: str) -> Callable[..., Any]:
    """Compile the kernel. Its cache depends on this file and its closures, and through `sources` on all kernels."""

    @kernel
    def draw_rows(
        seeds: np.ndarray, wanted: Wanted, limits: Limits, words: Words
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Draw a row per uint64 seed: BOS problem SOL solution ANS value EOS, then padding; flat without ANS value.

        Returns tokens int64 [row, most_tokens]; answers int64 [row, most_tokens - 1], the next token where that
        is the result of a clause or the final value, -100 elsewhere; sizes int64 [row, 2], the tokens up to SOL and
        to EOS (0 if no problem was found); ops int64 [row]. Longer problems are redrawn with the same number of ops
        (flat: any number).
        """
        sources  # noqa: B018
        n_rows = len(seeds)
        tokens = np.zeros((n_rows, wanted.most_tokens), np.int64)
        answers = np.full((n_rows, wanted.most_tokens - 1), IGNORE)
        sizes = np.zeros((n_rows, 2), np.int64)
        all_ops = np.zeros(n_rows, np.int64)
        stream = np.empty(1, np.uint64)
        draft = no_draft(wanted.modulus)
        text, is_result = np.empty(MOST_TOKENS, np.int64), np.empty(MOST_TOKENS, np.bool_)
        for row in range(n_rows):
            stream[0] = seeds[row]
            ops = wanted.ops
            if not wanted.exact and not wanted.flat:
                ops = 1 + draw(stream, wanted.ops)
                if not wanted.even:
                    ops = min(ops, 1 + draw(stream, wanted.ops))
            for _ in range(MOST_TRIES):
                if wanted.flat:
                    outline = draw_flat_problem(wanted.test, words, draft, stream)
                else:
                    outline = draw_problem(ops, wanted.test, limits, words, draft, stream)
                n_clauses = outline.n_clauses
                if n_clauses == 0 or n_clauses > ops or (wanted.exact and n_clauses < ops):
                    continue
                n_prompt, n = _write(outline, draft, text, is_result, words, wanted, stream)
                if n <= wanted.most_tokens and row_in_split(wanted.test, n_clauses, text, n):
                    tokens[row, :n] = text[:n]
                    for t in range(n_prompt, n):
                        if is_result[t]:
                            answers[row, t - 1] = text[t]
                    sizes[row, 0], sizes[row, 1] = n_prompt, n
                    all_ops[row] = n_clauses
                    break
        return tokens, answers, sizes, all_ops

    return draw_rows


def _digest() -> str:
    """Return a digest of all that is compiled into the kernel: its source files and `IGNORE`."""
    here = Path(__file__)
    files = [*sorted(here.parent.glob("*.py")), here.parents[2] / "random64.py"]
    return hashlib.sha256(
        b"".join([*(file.read_bytes() for file in files), str(IGNORE).encode()])
    ).hexdigest()


draw_rows = _compiled(_digest())
