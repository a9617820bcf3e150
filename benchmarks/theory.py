"""Time of the field of Figure 2 at a million points, including the gradient."""

import pandas as pd
from paired import Bar, figure, ratio, take_turns, timed

from ihlab.theory import landscape

TABLE = "Theorem 3.4 on a 1000 x 1000 grid, loss and gradient"


def measure(quick: bool = False) -> pd.DataFrame:
    """Return the seconds of the exact and the printed form."""
    points = 200 if quick else 1000
    seconds = take_turns(
        {
            "exact": timed(lambda: landscape.field("exact", n_tokens=12, points=points)),
            "printed": timed(lambda: landscape.field("printed", other=10, points=points)),
        },
        rounds=3 if quick else 15,
    )
    return pd.DataFrame(
        [
            *(figure(TABLE, form, times, "s", Bar(0.3)) for form, times in seconds.items()),
            ratio(TABLE, "exact / printed", seconds["exact"], seconds["printed"]),
        ]
    )
