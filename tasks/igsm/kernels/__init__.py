"""iGSM's inner loops, compiled by numba."""
