"""Printed tables: the stored cells, how questions count, verdicts on altered tables, the drawings.

`test_rederived.py` derives each number again.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ihlab.paper.studies.printed import (
    BATCH,
    COMPARATORS,
    FOLDER,
    KV,
    OURS,
    VANILLA,
    Question,
    Table2,
    Tables6To13,
    losses,
)
from ihlab.study.claim import judged

PRINTED = pd.read_csv(FOLDER / "tables6to13.csv")
COMPARED = dict(zip(COMPARATORS, ("differential", "differential_qk_norm", "selective"), strict=True))


@pytest.fixture
def table2():
    return Table2().gather([], "laptop")


@pytest.fixture(scope="module")
def data():
    return Tables6To13().gather([], "laptop")


def verdicts(study, data):
    return [claim.verdict for claim in judged(study.claims(data, "laptop"))]


# The stored cells


def test_the_printed_averages_are_those_of_the_cells(table2):
    """A cell that was copied wrongly moves its average by more than a rounding."""
    for _, checkpoint in table2[table2["table"] == 2].groupby(["model", "tokens"]):
        average = checkpoint["quantity"] == "average"
        cells, printed = checkpoint[~average], checkpoint[average]
        assert (len(cells), len(printed)) == (8, 1)
        for column in ("vanilla", "shifted"):
            assert cells[column].mean() == pytest.approx(printed[column].item(), abs=0.0051)


def test_every_table_has_its_thirty_cells():
    grid = {(lr, n) for lr in (1e-4, 2e-4, 4e-4, 1e-3, 2e-3, 4e-3) for n in (256, 512, 1024, 2048, 4096)}
    for number, cells in PRINTED.groupby("table"):
        assert set(zip(cells["lr"], cells["context"], strict=True)) == grid
        assert len(set(cells["method"])) == 1
        assert cells["loss"].notna().sum() == (18 if number == 13 else 30)
    assert set(PRINTED["method"]) == {*OURS, *COMPARATORS}
    assert set(PRINTED[PRINTED["loss"].isna()]["context"]) == {2048, 4096}
    assert PRINTED["loss"].isna().equals(PRINTED["note"] == "OOM")
    pages = {6: 18, 7: 18, 8: 18, 9: 19, 10: 19, 11: 19, 12: 19, 13: 20}
    assert set(zip(PRINTED["table"], PRINTED["page"], strict=True)) == set(pages.items())


def test_counts_and_settings_have_a_page_and_a_quote(data):
    other = data[data["kind"] != "loss"]
    assert set(other["kind"]) == {"count", "setting"}
    assert other["page"].between(1, 24).all()
    assert other["quote"].str.len().between(4, 60).all()
    counts, early = other[other["kind"] == "count"], other["note"] == "at 20B tokens"
    assert counts.loc[~early, "number"].tolist() == [50, 17, 9, 52]
    assert counts.loc[early, "number"].tolist() == [47, 43]


def test_the_note_on_parameters_follows_from_table_16(data):
    blocks = 28 * (4 * 2048**2 + 3 * 2048 * 5504)
    notes = data.loc[data["quantity"] == "parameters", "note"]
    for embeddings in (0, 1, 2):
        assert notes.str.contains(f"{(blocks + embeddings * 36000 * 2048) / 1e9:.2f}e9", regex=False).all()


def test_section_4_1_in_binary_millions_is_table_16(data):
    """Only 19B differs, and only Figure 5 contradicts both."""
    stated = data[data["quantity"] == BATCH].pivot_table(index="model", columns="source", values="number")
    exact = stated["section 4.1"] == stated["Table 16"]
    assert exact.index[~exact].tolist() == ["19B"]
    assert (stated["Table 16"] / stated["Figure 5"]).dropna().tolist() == pytest.approx([2.097152] * 3)


def test_comparators_never_win_and_are_below_vanilla_only_where_it_broke_down(data):
    loss = losses(data)
    assert (loss[list(COMPARATORS)].min(axis=1) > loss[list(OURS)].min(axis=1)).all()
    for method in COMPARATORS:
        assert loss.index[loss[method] < loss[VANILLA]].tolist() in ([], [(0.004, 2048)])


# How questions count


def test_a_question_counts_the_rows_that_match():
    frame = pd.DataFrame({"a b": [1.0, 2.0, np.nan, 1.0], "c": [2.0, 1.0, 2.0, 3.0], "of": ["x", "x", "x", "y"]})
    exact = Question("it_is", None, "So it is.", "page 1", "{k} of {n} in {who}", hit="`a b` < c", threshold=0.7)
    claim = exact.claim({"cells": frame}, {"who": "all"})
    assert (claim.estimate.value, claim.measure, claim.p, claim.verdict) == (0.5, "2 of 4 in all", None, "fails")
    sampled = Question(
        "it_is", None, "So it is.", "page 1", "p = {p:.4f}", cells="of == 'x'", hit="c > 1", sampled=True
    )
    claim = sampled.claim({"cells": frame.loc[[0, 2] * 5]}, {})
    assert (claim.estimate.value, claim.measure) == (1, f"p = {2 / 2**10:.4f}")
    assert claim.p == pytest.approx(2 / 2**10, rel=1e-3)


def test_coupling_in_table_5(data):
    coupling = next(c for c in Tables6To13().claims(data, "laptop") if c.id == "become_coupled")
    heads = np.repeat([[1, 1], [0, 1], [1, 0], [0, 0]], [50, 17, 9, 52], axis=0)
    assert f"phi = {np.corrcoef(heads.T)[0, 1]:.2f}" in coupling.measure
    # The conditional odds ratio is the one under which the corner's expected count is the observed one.
    corner = stats.nchypergeom_fisher(128, 59, 67, coupling.estimate.value)
    assert corner.mean() == pytest.approx(50, rel=1e-6)


# Verdicts on altered tables


@pytest.mark.slow
def test_verdicts_on_table_2_can_come_out_the_other_way(table2):
    assert verdicts(Table2(), table2) == ["holds", "holds", "holds"]
    swapped = table2.rename(columns={"vanilla": "shifted", "shifted": "vanilla"})
    assert verdicts(Table2(), swapped) == ["fails", "fails", "fails"]
    equal = table2.assign(shifted=table2["vanilla"])  # equal models are never better
    assert verdicts(Table2(), equal) == ["fails", "fails", "fails"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "change", "expected"),
    [
        (KV, -0.05, {"best_in_almost_every": "holds"}),
        *((method, -1.0, {f"kv_better_than.{name}": "fails"}) for method, name in COMPARED.items()),
        (KV, 0.004, {"both_halves.key": "undecided"}),
        (KV, 0.011, {"both_halves.value": "undecided"}),
        (KV, 1.0, {"both_halves.key": "fails", "both_halves.value": "fails"}),
    ],
)
def test_verdicts_on_losses_follow_the_losses(data, method, change, expected):
    def found(table):
        return {claim.id: claim.verdict for claim in Tables6To13().claims(table, "laptop")}

    before, altered = found(data), found(data.assign(loss=data["loss"] + change * (data["method"] == method)))
    assert {id: altered[id] for id in expected} == expected
    assert all(before[id] != verdict for id, verdict in expected.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([50, 17, 9, 52, 47, 43], ["holds", "holds", "undecided", "holds"]),
        ([50, 30, 9, 52, 47, 43], ["holds", "holds", "holds", "holds"]),
        ([9, 1, 50, 17, 7, 3], ["fails", "fails", "fails", "undecided"]),
        ([9, 50, 50, 9, 30, 29], ["fails", "undecided", "undecided", "fails"]),
    ],
)
def test_verdicts_on_heads_follow_the_counts(data, counts, expected):
    altered = data.copy()
    altered.loc[altered["kind"] == "count", "number"] = counts
    assert [claim.verdict for claim in Tables6To13().claims(altered, "laptop")[-5:-1]] == expected


@pytest.mark.slow
def test_batch_sizes_agree_without_figure_5(data):
    def agree(table):
        [claim] = [c for c in judged(Tables6To13().claims(table, "laptop")) if c.id == "batch_sizes_agree"]
        return claim.verdict

    assert agree(data) == "fails"
    assert agree(data[data["source"] != "Figure 5"]) == "holds"
