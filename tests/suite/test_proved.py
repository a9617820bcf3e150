"""The proofs that come with the package: their checkers accept them, and they are about the members' weights."""

import json
import subprocess
import sys

import pytest

from ihlab import kept, suite
from ihlab.certify import certify, standalone

PROVED = [name for name in kept.names() if kept.proof(name)]


def test_a_member_is_proved():
    assert PROVED == ["induction-kv-shift-narrow"]
    assert kept.proof("vanilla-2-layers") is None
    assert kept.proof("no such run") is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PROVED)
def test_a_kept_proof_is_that_of_the_members_weights(name, tmp_path):
    folder = kept.path(name).parent / kept.proof(name)
    program = [sys.executable, "-I", "-S", standalone.__file__, str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout == "3360 of 3360 rows hold, 3360 are proved. Others: []\n"
    model = suite.load(name)
    again = certify(model).export(tmp_path / "again")
    assert json.loads((folder / "model.json").read_text()) == json.loads((again / "model.json").read_text())
    facts = suite.truth(name)
    assert facts["proof"] == kept.proof(name)
    assert suite.truth("recall-attention-only-2")["proof"] is None
