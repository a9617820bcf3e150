"""Workers of Ray run at the tests' own priority: at theirs, which is lower, a busy machine lets them wait for long."""

import os

os.environ.update(RAY_worker_niceness="0")
