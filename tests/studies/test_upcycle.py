"""The study of upcycling at smoke scale, and its verdicts on made-up tables."""

import pandas as pd
import pytest

from ihlab.studies.upcycle import ARMS, BOTH, NONE, SCALES, Upcycle
from tasks import ConfigError

STUDY = Upcycle()


def table(**losses):
    """A table in which every held-out file has its own level, and each arm a difference from it."""
    rows = [
        {"kind": "held-out", "arm": arm, "number": i, "loss": 2 + i / 10 + 1e-4 * (i % 3) + losses.get(arm, 0.0)}
        for arm in ARMS
        for i in range(20)
    ]
    for layer in range(6):
        for head in range(4):
            scores = {"prefix_matching": layer / 6, "previous_token": 1 - layer / 6}
            place = {"kind": "head", "layer": layer, "head": head, "kv_head": head // 2}
            rows += [place | scores | {"arm": NONE}]
            rows += [place | scores | {"arm": BOTH, "alpha": layer / 10 + head / 100, "beta": 0.0}]
    for i in range(10):
        rows += [{"kind": "probe", "arm": NONE, "number": i, "rise": 1.0 + i / 20, "early": 0.01 * (i % 2)}]
        rows += [{"kind": "probe", "arm": BOTH, "number": i, "rise": 0.4 + i / 19, "early": 0.2 + 0.011 * (i % 2)}]
    return pd.DataFrame(rows)


def verdicts(data):
    return [claim.verdict for claim in STUDY.claims(data, "laptop")]


def test_verdicts_come_out_both_ways():
    helps = table(**{BOTH: -0.1, "keys": -0.001, "values": 0.2})
    helps.loc[(helps["arm"] == SCALES) & (helps["kind"] == "held-out"), "loss"] += helps["number"] * 1e-5
    assert verdicts(helps) == ["holds", "fails", "fails", "holds", "holds", "holds"]
    other = helps.replace({"arm": {NONE: BOTH, BOTH: NONE}})
    other.loc[other["kind"] == "head", ["prefix_matching", "previous_token"]] = helps[
        ["previous_token", "prefix_matching"]
    ].to_numpy()[helps["kind"] == "head"]
    other.loc[other["kind"] == "head", ["alpha", "beta"]] = helps[["alpha", "beta"]].to_numpy()[helps["kind"] == "head"]
    other.loc[other["kind"] == "head", "arm"] = helps["arm"][helps["kind"] == "head"]
    assert verdicts(other)[3:] == ["fails", "fails", "fails"]


def test_without_the_model_a_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="upcycle needs the model in models/SmolLM2-135M-Instruct: `make real`"):
        STUDY.gather([], "laptop")
    with pytest.raises(ConfigError, match="made at laptop scale, not at paper scale"):
        STUDY.gather([], "paper")
