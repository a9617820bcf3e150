"""Run Ray's workers at the tests' priority: at Ray's lower one, they wait for long on a busy
machine.
"""

import os

os.environ.update(RAY_worker_niceness="0")
