"""Training of many runs: grids, pools of workers, tables of results."""
