"""Attention variants with their own parameters or formula, one file each: subclasses of
`ihlab.model.attention`.
"""
