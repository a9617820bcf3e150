"""Paths of gradient descent and of gradient flow on the loss of Theorem 3.4."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ihlab.theory.landscape.forms import Numbers, evaluate, loss
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
    every: int = 1,
    square: bool = False,
) -> Path:
    """Run gradient descent on the loss `form` from each start. Records the steps that are multiples
    of `every`, from 0.

    With `square`, alpha1 and beta1 descend under the constraint alpha2 = 1 - alpha1 and beta2 = 1 -
    beta1, as in Figure 2; in the paper this holds only at the start. Raises `ConfigError` as `loss`
    does, for lr <= 0, steps or every < 1, and with `square` for a start off the square.
    """
    require(lr > 0, f"lr is {lr}, but must be positive.")
    require(steps >= 1, f"steps is {steps}, but must be at least 1.")
    require(every >= 1, f"every is {every}, but must be at least 1.")
    loss(alpha1, alpha2, beta1, beta2, n_tokens, form, other)  # raises for an invalid start
    point = np.stack(
        np.broadcast_arrays(
            *(np.asarray(x, dtype=np.float64) for x in (alpha1, alpha2, beta1, beta2))
        )
    )
    sums = point[0] + point[1], point[2] + point[3]
    require(
        not square or np.allclose(sums, 1),
        "square holds alpha1 + alpha2 = beta1 + beta2 = 1, but a start does not satisfy it.",
    )
    times = np.arange(0, steps + 1, every)
    visited, losses = [], []
    for step in range(steps + 1):
        value, by = evaluate(point, n_tokens, form, other)
        slope = np.array(by)
        if step % every == 0:
            visited.append(point)
            losses.append(value)
        if square:
            along = (slope[0] - slope[1], slope[2] - slope[3])
            slope = np.stack([along[0], -along[0], along[1], -along[1]])
        point = point - lr * slope
    a1, a2, b1, b2 = np.stack(visited, axis=1)
    return Path(times * lr, a1, a2, b1, b2, np.stack(losses))


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
    loss(alpha1, alpha2, beta1, beta2, n_tokens, form, other)

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
    a1, a2, b1, b2 = solved.y
    return Path(times, a1, a2, b1, b2, evaluate(solved.y, n_tokens, form, other)[0])
