"""The inner loop of arithmetic modulo a prime, compiled."""

import numpy as np

from tasks.batch import IGNORE
from tasks.compiled import kernel
from tasks.random64 import GOLDEN, below


@kernel
def draw_rows(
    seeds: np.ndarray, modulus: int, max_operations: int, length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw sequences of expressions (rows), one per uint64 seed.

    Returns inputs, targets (-100 where nothing is scored) and the number of operations at each scored position (else
    0), int64 [row, length].
    """
    most = 2 * max_operations + 4  # tokens of an expression with its result
    inputs = np.empty((len(seeds), length + most), np.int64)  # the last expression is cut at `length`
    targets = np.full((len(seeds), length + most), IGNORE)
    operations = np.zeros((len(seeds), length + most), np.int64)
    pending = np.empty(max_operations + 2, np.int64)  # number of operations of each operand to come, the next on top
    values = np.empty(max_operations + 2, np.int64)
    equals = modulus + 3

    for row in range(len(seeds)):
        state = seeds[row]
        t = 0
        while t < length:
            state += GOLDEN
            n = 1 + below(state, max_operations)
            inputs[row, t] = equals + n
            t += 1
            pending[0] = n
            n_pending = 1
            while n_pending:
                left = pending[n_pending - 1]
                state += GOLDEN
                if left == 0:
                    inputs[row, t] = below(state, modulus)
                    n_pending -= 1
                else:
                    inputs[row, t] = modulus + below(state, 3)
                    state += GOLDEN
                    first = below(state, left)
                    pending[n_pending - 1], pending[n_pending] = left - 1 - first, first
                    n_pending += 1
                t += 1

            n_values = 0  # prefix notation, read from its end: an operation's first operand is on top
            for position in range(t - 1, t - 2 * n - 2, -1):
                token = inputs[row, position]
                if token < modulus:
                    values[n_values] = token
                    n_values += 1
                    continue
                n_values -= 1
                a, b = values[n_values], values[n_values - 1]
                result = a + b if token == modulus else a - b if token == modulus + 1 else a * b
                values[n_values - 1] = result % modulus
            inputs[row, t], inputs[row, t + 1] = equals, values[0]
            targets[row, t], operations[row, t] = values[0], n
            t += 2
    return inputs[:, :length], targets[:, :length], operations[:, :length]
