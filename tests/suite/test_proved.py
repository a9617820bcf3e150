"""The proofs that come with the package: their checkers accept them, and they are about the
members' weights.
"""

import json
import subprocess
import sys

import pytest

from ihlab import kept, suite
from ihlab.certify import certify, export, standalone
from ihlab.cli import main

ROWS = {"alibi-proved": 3360, "learned-proved": 480, "narrow": 3360, "rope-proved": 3360}
"""Rows of each proof: 240 questions at every length, or with learned positions at lengths 8 and 16.
"""
PROVED = [name for name in kept.names() if kept.proof(name)]


def test_a_member_is_proved():
    assert [f"induction-kv-shift-{name}" for name in ROWS] == PROVED
    assert kept.proof("vanilla-2-layers") is None
    assert kept.proof("no such run") is None


def test_a_proof_is_of_the_last_checkpoint_alone():
    name = "induction-kv-shift-narrow"
    last = suite.run(name).checkpoints[-1]
    for step, proof in ((None, f"{name}/proof"), (last, f"{name}/proof"), (0, None)):
        assert suite.truth(name, step=step)["proof"] == proof


def folder_of(name):
    return kept.path(name).parent / kept.proof(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROVED)
def test_a_kept_proof_is_of_the_members_weights(name, tmp_path, monkeypatch):
    """One question suffices: check.py computes all from the weights."""
    monkeypatch.setattr(export, "require_covered", lambda certificate: None)
    stored, model = json.loads((folder_of(name) / "model.json").read_text()), suite.load(name)
    one = certify(model, lengths=stored["lengths"], questions=[(0, 1)], margins=False)
    again = one.export(tmp_path / "again")
    assert stored == json.loads((again / "model.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.rare] * ("rope" not in name)) for name in PROVED],
)
def test_every_row_of_a_kept_proof_holds(name):
    """The others differ from the one with RoPE in their numbers. Campaigns check all."""
    program = [sys.executable, "-I", "-S", standalone.__file__, str(folder_of(name))]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    rows = ROWS[name.removeprefix("induction-kv-shift-")]
    assert f": {rows} rows, {rows} proved. Not as claimed: []" in done.stdout


def test_the_certificate_of_another_call_is_not_checked_in_its_place(tmp_path, capsys):
    """It may be of fewer lengths than were asked for."""
    name, path = "induction-kv-shift-rope-proved", tmp_path / "three.safetensors"
    certify(suite.load(name), lengths=[3], path=path)
    main(["certify", name, "--lengths", "3", "3", "--check", "--out", str(path)])
    with pytest.raises(SystemExit):
        main(["certify", name, "--lengths", "3", "4", "--check", "--out", str(path)])
    assert "(lengths differs)" in capsys.readouterr().err
