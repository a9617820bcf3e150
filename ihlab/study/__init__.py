"""The engine of verdicts: studies, questions, claims and their statistics, the ledger of an
experiment's folder.
"""
