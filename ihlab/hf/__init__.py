"""Shifted keys and values in Hugging Face models: a reference implementation for transformers, and
its tests.
"""

from ihlab.hf.convert import from_hf, to_hf
from ihlab.hf.model import KVShiftConfig, KVShiftForCausalLM, add_shift, unshifted

__all__ = ["KVShiftConfig", "KVShiftForCausalLM", "add_shift", "from_hf", "to_hf", "unshifted"]
