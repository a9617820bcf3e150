"""Measures of a model on rows: loss, accuracy, and attention scores of its heads. One definition of each."""
