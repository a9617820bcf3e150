"""How many hops a number of layers suffices for (`ihlab.theory.k_hop` has the models that show it)."""


def horizon(n_layers: int, attention: str) -> int:
    """Return the most hops that L layers are known to follow: 2^(L-1) with the key shift, else 2^(L-1) - 1.

    Without the key shift one layer follows none. `attention` is a kind of `ModelConfig.attention`: "kv_shift" and
    "k_shift" shift the keys, "v_shift" and "vanilla" do not, and the value of the token before is no help in finding
    the token after.
    """
    return 2 ** (n_layers - 1) - (attention not in {"kv_shift", "k_shift"})


def by_previous_token(n_layers: int) -> int:
    """Return the hops that L vanilla layers follow if the first attends to the token before: 2^(L-2), for L > 1.

    The construction of Sanford et al. 2024 (arXiv 2402.09268), whose 8 hops for 5 layers are the paper's.
    """
    return 2 ** (n_layers - 2) if n_layers > 1 else 0
