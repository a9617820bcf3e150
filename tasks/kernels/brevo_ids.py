"""Token ids and limits of Brevo, in a module without numba, for the task and its kernel."""

PADDING, BOS, ASK, ANSWER, FIRST_VERTEX = range(5)
"""Token ids. Vertices have the ids from FIRST_VERTEX on."""
MOST = 4
"""Largest number of vertices that a vertex depends on, and that depend on it. (The compiled kernel contains it and the
ids as constants: after a change here, delete `tasks/kernels/__pycache__`.)"""
