"""The page of the members: a row and a picture for each that is there, with the range over its
seeds.
"""

import pytest
from matplotlib.image import imread
from suite_members import write

from ihlab import suite
from ihlab.suite.members import HAND_SET


@pytest.mark.slow
def test_every_member_has_a_row_and_a_picture(built, tmp_path, monkeypatch):
    name = "triggers-kv-shift-1"
    for other in [
        each for each in HAND_SET if each not in ("hand-set-two-layers", "hand-set-kv-shift")
    ]:
        monkeypatch.delitem(HAND_SET, other)  # of four layers, it takes a minute
    root = built(name)
    assert write(tmp_path, root) == tmp_path / "suite_members.md"
    page = (tmp_path / "suite_members.md").read_text()
    rows = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")
        for line in page.splitlines()
        if "-" in line
    }
    found = [
        suite.truth(name, seed, root=root)["accuracy"]["accuracy_source_2"] for seed in range(3)
    ]
    assert rows[name][1] == "0 of 3"
    accuracy = rows[name][2].split("–")
    assert (float(accuracy[0]), float(accuracy[-1])) == pytest.approx(
        (min(found), max(found)), abs=0.0051
    )
    assert rows["hand-set-two-layers"][1:3] == ["1 of 1", "1.00"]
    assert "induction-vanilla-2" not in page
    for task in ("triggers", "hand-set"):
        assert f"(suite-{task}.png)" in page
        assert imread(tmp_path / f"suite-{task}.png").shape[1] == 1408
