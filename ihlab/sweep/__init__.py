"""Training of many runs: grids, pools of workers, retries, tables of results, trackers."""
