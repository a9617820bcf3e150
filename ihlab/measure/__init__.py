"""Measures of a model on sequences: loss, accuracy, and attention scores of its heads. Each is
defined once.
"""
