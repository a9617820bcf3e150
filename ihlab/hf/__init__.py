"""Shifted keys and values in real models: a reference implementation for transformers, and its conformance suite."""

from ihlab.hf.model import KVShiftConfig, KVShiftForCausalLM, add_shift

__all__ = ["KVShiftConfig", "KVShiftForCausalLM", "add_shift"]
