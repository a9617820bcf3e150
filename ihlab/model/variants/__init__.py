"""Attention variants with their own parameters or formula, one file each: subclasses of
`ihlab.model.attention`.
"""

from ihlab.model.registry import RULES, VARIANTS, Variant, register_attention

__all__ = ["RULES", "VARIANTS", "Variant", "register_attention"]
