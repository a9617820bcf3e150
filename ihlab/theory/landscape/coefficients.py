"""Points of Theorem 3.4's model whose local learning coefficient is known exactly, to calibrate an estimator.

Let K(w) >= 0 be a loss minus its minimum, and V(eps) the volume of {K < eps} near a minimum. For small eps

    V(eps) ~ eps^lambda (log 1/eps)^(m - 1)

with the learning coefficient lambda and its multiplicity m (Watanabe 2009; Lau et al., arXiv 2308.12108). An isolated
nondegenerate minimum in d dimensions has lambda = d / 2. A smooth set of minima of dimension k, where the
Hessian has rank d - k, has lambda = (d - k) / 2.

The loss of Theorem 3.4 has no minimum: it falls to 0 only as alpha2 and beta1 grow. So at one point weight decay is
added. At the others the model has a teacher: itself at the point w0. K is then the Kullback-Leibler divergence from the
output distribution at w0 to the one at w. To leading order K is a quadratic form in the changes of three logits, each
taken minus that of the T - 4 other tokens:

    beta1 (a2 - r),    beta2 (a1 - r),    beta1 (2 a1 - r) + beta2 (a2 - r).

Their Jacobian has rank 3 at `LINE` and, since beta = 0, rank 2 at `PLANE`. At `QUARTIC`, alpha = 0 and beta1 = 0, three
directions have the orders 2, 2 and 4, so lambda = 1/2 + 1/2 + 1/4. At `CROSSING`, 2 a1 = r and beta2 = 0, only
beta1 alpha2 r is left: two curves of minima cross.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from ihlab.theory.landscape.forms import LOGITS, evaluate

N_TOKENS = 8
DECAY = 0.03
REGULAR, LINE, QUARTIC, PLANE, CROSSING = "regular", "line", "quartic", "plane", "crossing"


@dataclass(frozen=True)
class Minimum:
    """A minimum of K at the point `at` (alpha1, alpha2, beta1, beta2). Only parameters with indices in `free` may move.

    K is a teacher's divergence, or with `decay` the loss with decay / 2 ||w||^2 minus its minimum.
    """

    at: tuple[float, ...]
    coefficient: float
    multiplicity: int = 1
    free: tuple[int, ...] = (0, 1, 2, 3)
    decay: float = 0.0

    def excess(self, w: Float[Tensor, "4 ..."]) -> Float[Tensor, "..."]:
        """Return K at each w; differentiable."""
        return excess_of([self], w[:, None])[0]

    @cached_property
    def stiffness(self) -> float:
        """The largest curvature of K at the minimum and one unit away along each axis.

        It sets the scale of step size and temperature. The curvature at a minimum is not enough: it is zero where two
        valleys cross.
        """
        point, free = torch.tensor(self.at, dtype=torch.float64), list(self.free)
        units = torch.eye(4, dtype=torch.float64)[free]
        around = (point, *(point + units), *(point - units))
        hessians = [torch.autograd.functional.hessian(self.excess, w) for w in around]
        return max(float(torch.linalg.eigvalsh(hessian[free][:, free])[-1]) for hessian in hessians)

    def tempered(
        self, n_beta: float, localization: float, walkers: int = 2000, steps: int = 2000, seed: int = 0
    ) -> float:
        """Return n_beta E[K] under the density exp(-n_beta K - localization ||w - w0||^2 / 2), by Metropolis sampling.

        An estimator of the coefficient estimates this number. It tends to lambda as n_beta grows.
        """
        rng = np.random.default_rng(seed)
        point, free = torch.tensor(self.at, dtype=torch.float64)[:, None], list(self.free)

        def energy(w: Tensor) -> tuple[Tensor, Tensor]:
            k = self.excess(w)
            return k, n_beta * k + localization / 2 * ((w - point) ** 2).sum(dim=0)

        w = point.repeat(1, walkers)
        (k, now), total = energy(w), 0.0
        narrow = -0.5 * math.log(n_beta * self.stiffness + localization)
        wide = -0.5 * math.log(localization) + 1
        for step in range(steps):
            scale = np.exp(rng.uniform(narrow, wide, walkers))
            proposed = w.clone()
            proposed[free] += torch.from_numpy(scale * rng.normal(size=(len(free), walkers)))
            k_there, there = energy(proposed)
            moves = torch.from_numpy(np.log1p(-rng.random(walkers))) < now - there
            w, k, now = torch.where(moves, proposed, w), torch.where(moves, k_there, k), torch.where(moves, there, now)
            total += float(k.mean()) if step >= steps // 2 else 0.0
        return n_beta * total / (steps - steps // 2)


def excess_of(minima: Sequence[Minimum], w: Float[Tensor, "4 minimum ..."]) -> Float[Tensor, "minimum ..."]:
    """Return K of each minimum at its own points w; differentiable."""
    ones = [1] * (w.ndim - 2)
    points = torch.tensor([minimum.at for minimum in minima], dtype=w.dtype).T.reshape(4, -1, *ones)
    decay = torch.tensor([minimum.decay for minimum in minima], dtype=w.dtype).reshape(-1, *ones)
    answer = torch.tensor([1, 0, 0, 0], dtype=w.dtype).reshape(4, 1, *ones)
    target = torch.where(decay > 0, answer, log_probabilities(points).exp())

    def risk(w: Tensor) -> Tensor:
        return -(target * log_probabilities(w)).sum(dim=0) + decay / 2 * (w**2).sum(dim=0)

    return risk(w) - risk(points)


def log_probabilities(w: Float[Tensor, "4 ..."]) -> Float[Tensor, "4 ..."]:
    """Return the exact log-probabilities of x_{i+1}, x_{i-1} or x_T, x_i, and any other token."""
    alpha1, alpha2, beta1, beta2 = w
    scores = torch.stack([alpha1, alpha2, torch.zeros_like(alpha1)])
    counts = torch.tensor([2, 1, N_TOKENS - 2], dtype=w.dtype).log().reshape(3, *[1] * (w.ndim - 1))
    a1, a2, r = (scores - (scores + counts).logsumexp(dim=0)).exp()
    factors = {"a1": a1, "a2": a2, "r": r, "beta1": beta1, "beta2": beta2}
    logits = [sum(c * factors[one] * factors[other] for c, one, other in terms) for terms in LOGITS["exact"].values()]
    tokens = torch.tensor([1, 2, 1, N_TOKENS - 4], dtype=w.dtype).log().reshape(4, *[1] * (w.ndim - 1))
    return (torch.stack(logits) + tokens).log_softmax(dim=0)


def _regular() -> Minimum:
    def decayed(w: np.ndarray) -> tuple[float, np.ndarray]:
        value, by = evaluate(w, N_TOKENS)
        return float(value + DECAY / 2 * (w**2).sum()), np.array(by) + DECAY * w

    solved = minimize(decayed, np.array([0.0, 1.0, 1.0, 0.0]), jac=True, method="BFGS", options={"gtol": 1e-10})
    return Minimum(tuple(solved.x.tolist()), coefficient=4 / 2, decay=DECAY)


MINIMA: dict[str, Minimum] = {
    REGULAR: _regular(),
    LINE: Minimum((0.0, 2.0, 2.0, -4.0), coefficient=3 / 2),
    QUARTIC: Minimum((0.0, 0.0, 0.0, 4.0), coefficient=5 / 4),
    PLANE: Minimum((1.0, 1.0, 0.0, 0.0), coefficient=2 / 2),
    CROSSING: Minimum((-math.log(2), 0.0, 0.0, 0.0), coefficient=1 / 2, multiplicity=2, free=(1, 2)),
}
