"""Table 5: the heads it counts."""

import pandas as pd

from figures.table5.study import counted


def test_cells_stand_as_in_the_papers_table():
    """Columns alpha1 > alpha2 and not, rows beta1 > beta2 and not."""
    kinds = [("own", "own")] * 4 + [("previous", "own")] * 3 + [("own", "previous")] * 2
    kinds.append(("previous", "previous"))
    heads = pd.DataFrame(kinds, columns=["key_raw", "value_raw"])
    assert counted(heads, "raw").tolist() == [[4, 3], [2, 1]]
