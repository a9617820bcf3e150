"""Conversion of weights to and from Hugging Face's Llama and GPT-2, independent implementations of
the same models.
"""

from ihlab.model.conversion.gpt2 import from_gpt2, to_gpt2
from ihlab.model.conversion.llama import from_llama, to_llama

__all__ = ["from_gpt2", "from_llama", "to_gpt2", "to_llama"]
