"""Sizes of iGSM problems: structure, numbers and nouns at each difficulty."""

from tasks.config import config


@config
class Difficulty:
    """Sizes of one difficulty.

    - `most_edges`: maximum number of instances in a structure (ip of the source);
    - `most_layers` and `most_width`: maximum number of layers in a structure and of items in a layer, at least 2;
    - `most_ops`: maximum number of operations in a problem (52 letters name the results);
    - `modulus`: arithmetic is modulo this;
    - `domains`, `pools`, `pool_size`: how many are used: domains (up to 6), pools of each category (up to 5) and nouns
      of each pool (up to 20).
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
    "toy": Difficulty(
        most_edges=6, most_layers=3, most_width=3, most_ops=20, modulus=7, domains=1, pool_size=8
    ),
    "mini": Difficulty(
        most_edges=4,
        most_layers=3,
        most_width=2,
        most_ops=12,
        modulus=7,
        domains=1,
        pools=1,
        pool_size=4,
    ),
}
"""Difficulties by name. "med" and "hard" are those of Ye et al. 2024, arXiv 2407.20311, made for ops <= 15 and <= 21.
"mini" has up to 4 sentences and 16 nouns; with 3 operations three quarters of its problems have sentences that the
question does not need."""
