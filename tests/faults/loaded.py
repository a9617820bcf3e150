"""Imports everything that training needs, once, in the server whose forks are killed: this takes
seconds.
"""

import signal

import numpy as np
import torch._dynamo  # an optimiser imports it

import ihlab.cli
import ihlab.training.train  # noqa: F401
import tests.faults.kills  # noqa: F401
from tasks import InductionTask

InductionTask(vocab_size=40, length=12).batch(
    1, np.random.default_rng(0)
)  # loads numba's compiled functions
torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a process runs Python code of its own
