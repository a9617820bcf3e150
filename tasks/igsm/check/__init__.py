"""Verification of solutions of iGSM problems."""
