"""The loss of Theorem 3.4 and its gradient, in three forms: exact, as printed, and as the paper's
script draws it.

The setting (section 3.2): x_1 .. x_T all different, then x_{T+1} = x_i with 1 < i < T - 1; one KV
shifting head with W_q = W_k = W_v = W_o = I, tied orthonormal embeddings and nothing else; the loss
is the cross-entropy of x_{i+1} at the last position. With

    S = 2 exp(alpha1) + exp(alpha2) + (T - 2),  a1 = exp(alpha1) / S,  a2 = exp(alpha2) / S,  r = 1
    / S

the attention to the two copies of x_i, to x_{i+1} and to any other position, the logits are

    x_{i+1}            beta1 a2 + beta2 r
    x_{i-1} and x_T    beta1 r + beta2 a1
    x_i                2 beta1 a1 + beta2 a2
    T - 4 others       beta1 r + beta2 r

This is form "exact". The paper has two other forms:

- "printed" (equation 10, Table 3 and equation 14): the second row has beta2 a2 instead of beta2 a1,
  unlike the derivation in the paper's Appendix C. The others enter the softmax's denominator and S
  as a constant `other`, although they have a logit like any other token;
- "listing" (Appendix L): in addition, the third row has a2 + beta2 instead of a2 beta2, and the
  denominator has exp(other). (The listing cannot run: it calls its function with one argument too
  many and takes the exponential of a plain number.) It is kept to show what it draws.

The paper's setting is 1 < i < T. At i = T - 1 the follower of x_i is x_T, and the second row is
wrong too.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from tasks.config import choose, require

Term = tuple[float, str, str]
"""One term of a logit: a coefficient, a factor beta1, beta2 or one, and a factor a1, a2, r or one.
"""

_TARGET: list[Term] = [(1, "beta1", "a2"), (1, "beta2", "r")]
_REPEATED: list[Term] = [(2, "beta1", "a1"), (1, "beta2", "a2")]
_PRINTED_NEIGHBOURS: list[Term] = [(1, "beta1", "r"), (1, "beta2", "a2")]

LOGITS: dict[str, dict[str, list[Term]]] = {
    "exact": {
        "target": _TARGET,
        "neighbours": [(1, "beta1", "r"), (1, "beta2", "a1")],
        "repeated": _REPEATED,
        "others": [(1, "beta1", "r"), (1, "beta2", "r")],
    },
    "printed": {
        "target": _TARGET,
        "neighbours": _PRINTED_NEIGHBOURS,
        "repeated": _REPEATED,
        "others": [],
    },
    "listing": {
        "target": _TARGET,
        "neighbours": _PRINTED_NEIGHBOURS,
        "repeated": [(2, "beta1", "a1"), (1, "one", "a2"), (1, "beta2", "one")],
        "others": [],
    },
}

Numbers = int | float | np.number | np.ndarray | Sequence[Any]
"""Numbers or arrays, which are broadcast against each other."""

Array = Any
"""A float64 NumPy array or number."""


class Gradient(NamedTuple):
    """The derivative of the loss with respect to each parameter. Each has the broadcast shape of
    the arguments.
    """

    alpha1: Array
    alpha2: Array
    beta1: Array
    beta2: Array


def loss(
    alpha1: Numbers,
    alpha2: Numbers,
    beta1: Numbers,
    beta2: Numbers,
    n_tokens: Numbers | None = None,
    form: str = "exact",
    other: Numbers | None = None,
) -> Array:
    """Return the loss in nats, in float64, broadcast over all arguments.

    `n_tokens` is T. "printed" and "listing" take either T or `other`, the number for their O(T)
    term; T stands for other = T - 2, which gives the same S. Raises `ConfigError` for T below 5,
    other below 0, and numbers that are not finite.
    """
    return evaluate((alpha1, alpha2, beta1, beta2), n_tokens, form, other)[0]


def gradient(
    alpha1: Numbers,
    alpha2: Numbers,
    beta1: Numbers,
    beta2: Numbers,
    n_tokens: Numbers | None = None,
    form: str = "exact",
    other: Numbers | None = None,
) -> Gradient:
    """Return the gradient of `loss` in (alpha1, alpha2, beta1, beta2), in closed form. Raises as
    `loss` does.
    """
    return evaluate((alpha1, alpha2, beta1, beta2), n_tokens, form, other)[1]


def evaluate(
    point: Sequence[Numbers] | np.ndarray,
    n_tokens: Numbers | None = None,
    form: str = "exact",
    other: Numbers | None = None,
) -> tuple[Array, Gradient]:
    """Return `loss` and `gradient` at a point (alpha1, alpha2, beta1, beta2), computed together."""
    rows = LOGITS[choose("form", form, LOGITS)]
    require(
        form != "exact" or other is None,
        f"other is {other}, but the exact form has no O(T): give n_tokens.",
    )
    require(
        (n_tokens is None) != (other is None),
        f"The {form} form needs one size: n_tokens, the length T, or (not the exact form) other, its O(T).",
    )
    values = checked(point, n_tokens, other)
    rest = values["n_tokens"] - 2 if other is None else values["other"]  # the O(T) of S
    factors = _attention(values, rest)
    a1, a2, r = factors.values()
    factors |= {"beta1": values["beta1"], "beta2": values["beta2"], "one": 1.0}
    log_others = rest  # "listing" has exp(other) in the denominator
    if form != "listing":
        n_others = rest - 2 if form == "exact" else rest
        with np.errstate(divide="ignore"):  # -inf if there are none
            log_others = np.log(n_others)
    log_counts = {"neighbours": np.log(2), "others": log_others}

    logits = {
        name: sum(c * factors[attention] * factors[beta] for c, beta, attention in terms)
        for name, terms in rows.items()
    }
    relative = {name: logits[name] - logits["target"] + log_counts.get(name, 0.0) for name in rows}
    top = reduce(np.maximum, relative.values())
    powers = {name: np.exp(x - top) for name, x in relative.items()}
    total = sum(powers.values())
    wrong = sum(power for name, power in powers.items() if name != "target")
    # A small loss keeps its digits.
    value = np.where(top == 0, np.log1p(wrong), np.log(total) + top)

    by: dict[str, Array] = dict.fromkeys(factors, 0.0)
    for name, terms in rows.items():
        # Softmax minus one-hot:
        by_logit = (-wrong if name == "target" else powers[name]) / total
        for c, beta, attention in terms:
            by[beta] = by[beta] + by_logit * (c * factors[attention])
            by[attention] = by[attention] + by_logit * (c * factors[beta])
    # d a1 / d alpha1 = a1 - 2 a1 a1, d a2 / d alpha1 = -2 a1 a2, d r / d alpha1 = -2 a1 r; alpha2
    # likewise, once.
    mean = by["a1"] * a1 + by["a2"] * a2 + by["r"] * r
    return value, Gradient(
        a1 * (by["a1"] - 2 * mean), a2 * (by["a2"] - mean), by["beta1"], by["beta2"]
    )


def checked(
    point: Sequence[Numbers] | np.ndarray,
    n_tokens: Numbers | None = None,
    other: Numbers | None = None,
) -> dict[str, Array]:
    """Return the given numbers as float64 arrays, keyed by name. Raises `ConfigError` as `loss`
    does.
    """
    names = ("alpha1", "alpha2", "beta1", "beta2", "n_tokens", "other")
    values = {}
    for name, number in zip(names, (*point, n_tokens, other), strict=True):
        if number is not None:
            values[name] = np.asarray(number, dtype=np.float64)
            is_finite = bool(np.isfinite(values[name]).all())
            require(is_finite, f"{name} holds a number that is not finite.")
    if "n_tokens" in values:
        given = values["n_tokens"]
        wrong = given[(given < 5) | (given != np.floor(given))]
        require(
            not wrong.size,
            lambda: (
                f"n_tokens is {wrong[0]:g}, but must be a whole number of at least 5: x_{{i-1}}, x_i, "
                "x_{i+1}, x_T and another."
            ),
        )
    if "other" in values:
        negative = values["other"][values["other"] < 0]
        require(
            not negative.size,
            lambda: (
                f"other is {negative[0]:g}, but O(T) stands for a number of tokens and must not be "
                "negative."
            ),
        )
    return values


def _attention(values: dict[str, Array], rest: Array) -> dict[str, Array]:
    """Return a1, a2 and r, computed from exponents of at most 0 so that none overflows."""
    alpha1, alpha2 = values["alpha1"], values["alpha2"]
    top = np.maximum(np.maximum(alpha1, alpha2), 0.0)
    one, two, none = np.exp(alpha1 - top), np.exp(alpha2 - top), np.exp(-top)
    s = 2 * one + two + rest * none
    return {"a1": one / s, "a2": two / s, "r": none / s}
