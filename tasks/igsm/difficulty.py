"""Sizes of iGSM problems: structure, numbers and nouns at each difficulty."""

from tasks.config import config


@config
class Difficulty:
    """Sizes of one difficulty.

    - `most_edges`: instances of a structure at most (ip of the source);
    - `most_layers` and `most_width`: layers of a structure, items of a layer, 2 at least;
    - `most_ops`: no problems are made with more operations (52 letters name the results);
    - `modulus`: arithmetic is modulo this;
    - `domains` of the six, `pools` of each category's five, `pool_size` of each pool's 20 nouns.
    """

    most_edges: int
    most_layers: int
    most_width: int
    most_ops: int
    modulus: int
    domains: int = 6
    pools: int = 5
    pool_size: int = 20


DIFFICULTIES: dict[str, Difficulty] = {
    "med": Difficulty(most_edges=20, most_layers=4, most_width=4, most_ops=40, modulus=23),
    "hard": Difficulty(most_edges=28, most_layers=4, most_width=4, most_ops=48, modulus=23),
    "toy": Difficulty(most_edges=6, most_layers=3, most_width=3, most_ops=20, modulus=7, domains=1, pool_size=8),
    "mini": Difficulty(
        most_edges=4, most_layers=3, most_width=2, most_ops=12, modulus=7, domains=1, pools=1, pool_size=4
    ),
}
"""By name. "med" and "hard" are those of Ye et al. 2024, arXiv 2407.20311, made for ops <= 15 and <= 21.
"mini" has up to 4 sentences and 16 nouns; with 3 operations three quarters of its problems have sentences that nobody
needs."""
