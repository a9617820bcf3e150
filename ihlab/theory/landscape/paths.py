"""Paths of gradient descent and of gradient flow on the loss of Theorem 3.4."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ihlab.theory.landscape.forms import Numbers, evaluate
from tasks.config import require


@dataclass(frozen=True)
class Path:
    """alpha1, alpha2, beta1, beta2 and the loss along paths: [time, ...] with one path for each
    start.
    """

    time: Float[np.ndarray, " time"]
    alpha1: Float[np.ndarray, " time *start"]
    alpha2: Float[np.ndarray, " time *start"]
    beta1: Float[np.ndarray, " time *start"]
    beta2: Float[np.ndarray, " time *start"]
    loss: Float[np.ndarray, " time *start"]

    @property
    def parameters(self) -> Float[np.ndarray, "4 time *start"]:
        """alpha1, alpha2, beta1, beta2 in one array."""
        return np.stack([self.alpha1, self.alpha2, self.beta1, self.beta2])


def descend(
    alpha1: Numbers,
    alpha2: Numbers,
    beta1: Numbers,
    beta2: Numbers,
    n_tokens: int | None = None,
    form: str = "exact",
    other: int | float | None = None,
    lr: float = 0.1,
    steps: int = 1000,
) -> Path:
    """Run gradient descent on the loss `form` from each start, and record every step, from 0.

    Raises `ConfigError` as `loss` does, and for lr <= 0.
    """
    require(lr > 0, f"lr is {lr}, but must be positive.")
    point = np.stack(np.broadcast_arrays(alpha1, alpha2, beta1, beta2)).astype(np.float64)
    visited, losses = [], []
    for _ in range(steps + 1):
        value, by = evaluate(point, n_tokens, form, other)
        visited.append(point)
        losses.append(value)
        point = point - lr * np.array(by)
    times = lr * np.arange(steps + 1)
    rows = np.stack(visited, axis=1)
    return Path(times, *rows, np.stack(losses))  # type: ignore[call-arg]  # four rows


def flow(
    alpha1: float,
    alpha2: float,
    beta1: float,
    beta2: float,
    times: Float[np.ndarray, " time"],
    n_tokens: int | None = None,
    form: str = "exact",
    other: int | float | None = None,
) -> Path:
    """Integrate the gradient flow d theta / d t = -dL / d theta of all four parameters from one
    start.

    Returns the path at the given times. It integrates over log(1 + t), because the flow slows down
    and the times can span many powers of ten. Raises `ConfigError` as `loss` does, and for times
    that are negative, not finite or not increasing.
    """
    rise = len(times) > 0 and times[0] >= 0 and bool((np.diff(times) > 0).all())
    require(
        rise and 0 < times[-1] < math.inf,
        "times must increase, from at least 0 to a finite time above 0.",
    )

    def slope(log_time: float, point: np.ndarray) -> np.ndarray:
        by = evaluate(point, n_tokens, form, other)[1]
        return -np.exp(log_time) * np.array(by)

    logs = np.log1p(times)
    start = np.array([alpha1, alpha2, beta1, beta2], dtype=np.float64)
    from scipy.integrate import solve_ivp  # half a second, which a page of a run need not wait

    solved = solve_ivp(
        slope, (0.0, logs[-1]), start, method="LSODA", t_eval=logs, rtol=1e-9, atol=1e-11
    )
    assert solved.success, solved.message
    loss, _ = evaluate(solved.y, n_tokens, form, other)
    return Path(times, *solved.y, loss)  # type: ignore[call-arg]  # four rows
