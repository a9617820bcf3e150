"""Tables 2, 14 and 15: the stored cells against their printed averages, each verdict both ways, the drawing."""

import numpy as np
import pytest

from ihlab.studies.table2 import AVERAGE, Table2

EXPERIMENT = Table2()


@pytest.fixture
def data():
    return EXPERIMENT.gather([], "laptop")


def verdicts(data) -> list[str]:
    return [claim.verdict for claim in EXPERIMENT.claims(data, "laptop")]


def test_the_printed_averages_are_those_of_the_cells(data):
    """Read twice: a cell that was copied wrongly moves its average by more than a rounding."""
    table = data[data["table"] == 2]
    for _, checkpoint in table.groupby(["model", "tokens"]):
        cells, [printed] = (
            checkpoint[checkpoint["quantity"] != AVERAGE],
            checkpoint[checkpoint["quantity"] == AVERAGE].to_dict("records"),
        )
        assert len(cells) == 8
        for column in ("vanilla", "shifted"):
            assert cells[column].mean() == pytest.approx(printed[column], abs=0.0051)


def test_counts_by_hand(data):
    measures = [claim.measure for claim in EXPERIMENT.claims(data, "laptop")]
    assert "(14)" in measures[1]
    assert "2.9B: 3.98, 2.47, 2.12; 19B: 1.31, 0.91, 0.77" in measures[2]
    assert "0.0111, 0.0081, 0.0194, 0.0186, 0.0223" in measures[4]
    assert verdicts(data) == ["holds", "holds", "fails", "holds", "holds"]


def test_every_verdict_can_come_out_the_other_way(data):
    swapped = data.rename(columns={"vanilla": "shifted", "shifted": "vanilla"})
    assert verdicts(swapped)[:2] == ["fails", "fails"]
    assert verdicts(swapped)[3:] == ["fails", "fails"]
    growing = data.assign(shifted=np.where(data["table"] == 2, data["vanilla"] + data["tokens"], data["shifted"]))
    assert verdicts(growing)[2] == "holds"


def test_equal_models_are_never_better(data):
    equal = data.assign(shifted=data["vanilla"])
    assert verdicts(equal) == ["fails", "fails", "undecided", "fails", "fails"]


def test_the_drawing_has_every_cell(data):
    left, right = EXPERIMENT.draw(data, "laptop").axes
    benchmarks, averages = left.lines[:2]
    assert (len(benchmarks.get_xdata()), len(averages.get_xdata())) == (48, 6)
    assert right.lines[0].get_ydata() == pytest.approx([-11.1, -8.1, -19.4, -18.6, -22.3])


def test_summary_states_the_leads(data):
    told = EXPERIMENT.summary(data, "laptop")
    assert "3.98, 2.47, 2.12 points with 2.9B and 1.31, 0.91, 0.77 points with 19B" in told
