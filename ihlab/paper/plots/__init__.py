"""Plots that only the studies of the paper use."""
