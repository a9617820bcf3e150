"""Checks of a causal model of transformers with local state: a shift, a short convolution, a smear
or a recurrence.

    python -m ihlab.hf.conformance --model my_module:make_model
    python -m ihlab.hf.conformance --family lfm2

`make_model()` returns a Hugging Face causal LM, small enough to be run often, whose weights are
large enough that earlier tokens measurably change the logits (for a small random model,
initializer_range=0.2).
"""

from ihlab.hf.conformance.suite import CHECKS, Result, as_tests, each, run, table

__all__ = ["CHECKS", "Result", "as_tests", "each", "run", "table"]
