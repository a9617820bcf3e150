"""Exact statements of the paper as code: Definition 3.1 and Theorems 3.2, 3.3 and 3.4."""
