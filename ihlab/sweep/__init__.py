"""Training of many runs: grids, pools of workers, Ray, retries, tables of results."""
