"""The inner loops of iGSM, compiled by numba."""
