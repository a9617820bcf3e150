"""How many hops a number of layers suffices for (`ihlab.theory.k_hop` has the models that show it)."""


def horizon(n_layers: int, attention: str) -> int:
    """Return the most hops that L layers are known to follow: 2^(L-1) with the key shift, else 2^(L-2).

    Without the key shift one layer follows none. `attention` is a kind of `ModelConfig.attention`: "kv_shift" and
    "k_shift" shift the keys, "v_shift" and "vanilla" do not, and the value of the token before is no help in finding
    the token after.
    """
    hops = n_layers - (attention not in {"kv_shift", "k_shift"})
    return 2 ** (hops - 1) if hops else 0
