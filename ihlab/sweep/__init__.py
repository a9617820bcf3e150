"""Many runs: grids, pools of workers, retries, tables of results, trackers."""
