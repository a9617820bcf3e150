"""Shift a tiny model of every family of transformers that has a `k_proj` and a `v_proj`, and print
how it ends.

    python -m tests.hf.families [FAMILY ...]

A family "works" if it passes the checks equation_5, chunks and padding of `ihlab.hf.conformance`:
it equals equation 5 as a loop over tokens, reads chunks as it reads the whole sequence, and skips
padding. Checks that the unshifted model fails, too, do not count.
"""

import sys
import warnings
from functools import partial

from transformers.utils import logging

from ihlab.hf import add_shift
from ihlab.hf.attention import attentions
from ihlab.hf.conformance import run
from ihlab.hf.conformance.families import CAUSAL, tiny
from tasks.config import ConfigError


def outcome(family: str) -> str | None:
    """Return how a family ends, or None if it has no `k_proj` and `v_proj`."""
    try:
        model = tiny(family)
    except Exception as error:  # not about the shift
        return f"not tried: {type(error).__name__}: {error}".splitlines()[0]
    if not attentions(model):
        return None
    kinds = (
        (lambda: add_shift(tiny(family)), ("equation_5", "chunks", "padding")),
        (partial(tiny, family), ("chunks", "padding")),
    )
    try:
        shifted, plain = (
            {row.check: row.detail for row in run(make, checks) if row.outcome == "FAIL"}
            for make, checks in kinds
        )
    except ConfigError as error:
        return str(error)
    wrong = [f"{check}: {shifted[check]}" for check in shifted.keys() - plain.keys()]
    return (
        "WRONG: " + "; ".join(wrong)
        if wrong
        else f"works{', but not with padding, shifted or not' * ('padding' in plain)}"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    for name in sys.argv[1:] or sorted(CAUSAL):
        if (ends := outcome(name)) is not None:
            print(f"| {name} | {ends} |", flush=True)
