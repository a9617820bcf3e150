"""The page of the members: a row and a picture for each that is there, with the range over its
seeds.
"""

import pytest
from matplotlib.image import imread
from suite_members import write

from ihlab import suite
from ihlab.suite.members import HAND_SET


@pytest.mark.rare
def test_every_member_has_a_row_and_a_picture(built, tmp_path, monkeypatch):
    name, built_by_hand = "triggers-kv-shift-1", ("hand-set-two-layers", "hand-set-kv-shift")
    for other in set(HAND_SET) - set(built_by_hand):
        monkeypatch.delitem(HAND_SET, other)  # of four layers, it takes a minute
    root = built(name)
    assert write(tmp_path, root) == tmp_path / "suite_members.md"
    page = (tmp_path / "suite_members.md").read_text()
    found = [suite.truth(name, seed, root=root)["accuracy"] for seed in range(3)]
    accuracies = sorted(f"{each['accuracy_source_2']:.2f}" for each in found)
    span = "–".join(dict.fromkeys((accuracies[0], accuracies[-1])))
    assert f"| {name} | 0 of 3 | {span} | " in page
    assert "| hand-set-two-layers | 1 of 1 | 1.00 | " in page
    assert "induction-vanilla-2" not in page
    for task in ("triggers", "hand-set"):
        assert f"(suite-{task}.png)" in page
        assert imread(tmp_path / f"suite-{task}.png").shape[1] == 1408
