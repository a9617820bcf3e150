"""Sign-invariant coordinates of a head's alpha and beta.

(alpha, W_K) -> (-alpha, -W_K) and (beta, W_V) -> (-beta, -W_V) leave a model's function and its
training with AdamW unchanged, to the last bit. So the sign of a trained head's alpha or beta has no
meaning. These coordinates are meaningful: two angles modulo pi, and two norms, because AdamW is not
scale-equivariant.

- key_angle: from (0, 1) to (alpha1, alpha2), 0 at the induction corner, where alpha1 = 0;
- value_angle: from (1, 0) to (beta1, beta2), 0 at the induction corner, where beta2 = 0;
- key_norm, value_norm: the norms of (alpha1, alpha2) and (beta1, beta2).

Angles are in radians and in [-pi/2, pi/2), so that an angle's absolute value is its distance to the
corner: at most pi/2, and below pi/4 if |alpha2| > |alpha1| (keys) or |beta1| > |beta2| (values).
Rounded (`DECIMALS`), an angle of pi/4 is below it, too.

Theorem 3.4 has no W_K and W_V that could change sign, so signs matter to its gradient flow.
"""

from typing import Any

import numpy as np

DECIMALS = 6
"""Decimals of all coordinates. Rounding makes mathematically equal values equal, so that ranks tie
as they should.
"""


def coordinates(alpha1: Any, alpha2: Any, beta1: Any, beta2: Any) -> dict[str, Any]:
    """Return key_angle, value_angle, key_norm and value_norm of numbers, or of arrays."""
    values = {
        "key_angle": folded_angle(alpha2, alpha1),
        "value_angle": folded_angle(beta1, beta2),
        "key_norm": np.hypot(alpha1, alpha2),
        "value_norm": np.hypot(beta1, beta2),
    }
    return {
        name: np.round(value, DECIMALS) + 0.0 for name, value in values.items()
    }  # + 0.0 turns -0.0 into 0.0


def folded_angle(x: Any, y: Any) -> Any:
    """Return the angle of (x, y) modulo pi, in [-pi/2, pi/2).

    (x, y) and (-x, -y) have the same result: the angle of whichever of them points right or
    straight down.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    sign = np.where((x < 0) | ((x == 0) & (y > 0)), -1.0, 1.0)
    return np.arctan2(sign * y + 0.0, sign * x + 0.0)  # + 0.0: for -0.0 the angle would be pi


def angular_distance(key_angle: Any, value_angle: Any) -> Any:
    """Return the joint distance of two folded angles from `coordinates` to the induction corner."""
    return np.round(np.hypot(key_angle, value_angle), DECIMALS)


def paper_distance(alpha1: Any, beta1: Any) -> Any:
    """Return the distance of (alpha1, beta1) to (0, 1), which section 3.2 uses. It depends on the
    signs.
    """
    return np.round(np.hypot(alpha1, 1 - beta1), DECIMALS)
