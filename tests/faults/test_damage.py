"""Damaged run folders are refused in a sentence or make no difference; and the campaign would
notice otherwise.
"""

import random
from collections.abc import Callable

import pytest

from ihlab.storage import stored
from ihlab.training import checkpoint
from tests.faults import ways_in
from tests.faults.damage import Cell, campaign, matrix, outcomes

pytestmark = pytest.mark.slow


def test_a_sample_of_all_damage_through_all_ways_in(tmp_path):
    rows = campaign(80, 0, tmp_path)
    assert sum(row.tried for row in rows) == 80
    assert [row for row in rows if row.failed] == []
    assert {row.what for row in rows} >= {
        "damaged config.json",
        "damaged metrics.csv",
        "damaged weights",
    }


def wrong(folder, chosen: Callable[[Cell], bool]) -> list[str]:
    """What is wrong about the answers of chosen cells; at most 20 cells are tried."""
    ways_in.pristine(folder / "sound")
    cells = [cell for cell in matrix(folder / "sound") if chosen(cell)]
    assert cells
    return [fault for _, fault in outcomes(cells[:20], random.Random(0), folder) if fault]


def flipped(file: str, way: ways_in.Way) -> Callable[[Cell], bool]:
    return lambda cell: (
        cell.file == file and cell.way is way and cell.what.startswith("a flipped bit")
    )


LAST = f"checkpoints/step-{ways_in.CONFIG.steps}.safetensors"


def test_without_a_checkpoints_checksum_it_finds_flipped_bits(tmp_path, monkeypatch):
    assert wrong(tmp_path / "with", flipped(LAST, ways_in.model)) == []
    monkeypatch.setattr(checkpoint, "checksum", lambda tensors, about: "none")
    assert any(
        "another result" in what
        for what in wrong(tmp_path / "without", flipped(LAST, ways_in.model))
    )


def test_without_a_check_of_names_and_shapes_it_finds_tracebacks(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_require_layout", lambda path, tensors, like: None)
    found = wrong(
        tmp_path,
        lambda cell: cell.way is ways_in.model and cell.what.endswith((" missing", " of size 0")),
    )
    assert any("KeyError" in what for what in found)
    assert any("RuntimeError" in what for what in found)


def test_without_a_check_for_regular_files_it_finds_what_never_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "require_regular", lambda path: 10**4)
    monkeypatch.setattr(ways_in, "SECONDS", 1)
    found = wrong(tmp_path, lambda cell: cell.way is ways_in.opened and cell.what == "a FIFO")
    assert found == ["another result: 'no answer in 1 s'"]
