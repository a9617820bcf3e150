"""The tasks' inner loops, compiled by numba."""
