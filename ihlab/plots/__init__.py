"""Figures of DataFrames with matplotlib in colour-blind-safe colours. This package computes no
results.
"""
