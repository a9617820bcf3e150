"""The picture of a head that fetches the operands of an iGSM solution."""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from ihlab.plots.heads import attention_pattern
from ihlab.plots.style import ORANGE, printed


@printed
def operand_pattern(
    axes: Axes,
    pattern: Float[np.ndarray, "query key"],
    tokens: Sequence[int | str],
    fetched: Iterable[tuple[int, Sequence[int]]],
    start: int = 0,
) -> None:
    """Draw one head's pattern from position `start` on, with orange squares on the entries to be fetched.

    `fetched` has pairs of a query and its keys, as positions in the whole sequence (see `ihlab.paper.igsm.operands`).
    """
    attention_pattern(axes, pattern[start:, start:], tokens[start:])
    keys, queries = np.array([(key, query) for query, keys in fetched for key in keys]).reshape(-1, 2).T - start
    axes.scatter(keys, queries, marker="s", s=45, facecolors="none", edgecolors=ORANGE, linewidths=1.5)
