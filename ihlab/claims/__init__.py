"""The engine of verdicts: experiments, claims and their statistics, the ledger, the page of results."""
