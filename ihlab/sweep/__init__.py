"""Train many runs: grids, pools of worker processes, Ray, retries and tables of results."""
