"""Number of hops that a given number of layers can follow (`ihlab.theory.k_hop` has models that
do).
"""

from tasks.config import choose, require

FIRST = {"kv_shift": 0, "k_shift": 0, "v_shift": 1, "vanilla": 1}
"""Number of layers needed before the first hop can be read, for each attention."""


def horizon(n_layers: int, attention: str) -> int:
    """Return the most hops that L layers are known to follow: 2^L - 1 with the key shift, else
    2^(L-1) - 1.

    `attention` is one of four values of `ModelConfig.attention`: "kv_shift" and "k_shift" shift the
    keys, "v_shift" and "vanilla" do not. A value shift does not help, because the token before does
    not help to find the token after. Raises `ConfigError` for another attention, and for no layers.
    """
    return 2 ** (n_layers - _first(n_layers, attention)) - 1


def by_doubling(n_layers: int, attention: str) -> int:
    """Return the hops of pointer doubling alone with L layers: 2^(L-1) with the key shift, else
    2^(L-2), 0 if L = 1.

    Without the key shift this is the construction of Sanford et al. 2024 (arXiv 2402.09268), whose
    first layer attends to the previous token. For 5 layers these are the paper's 16 and 8. Raises
    as `horizon` does.
    """
    layers = n_layers - _first(n_layers, attention)
    return 2 ** (layers - 1) if layers else 0


def _first(n_layers: int, attention: str) -> int:
    require(n_layers >= 1, f"n_layers is {n_layers}, but must be at least 1.")
    return FIRST[choose("attention of this rule", attention, FIRST)]
