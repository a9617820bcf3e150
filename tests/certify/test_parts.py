"""Proofs about parts: against brute force on models whose parts are zeroed by hand, and on a model
built by hand.
"""

import numpy as np
import pytest
import torch

from ihlab.certify import certify, certify_circuit, check, parts_of
from ihlab.certify.parts import left_out
from ihlab.theory.constructions import kv_shift_induction_head
from tasks import ConfigError
from tests.certify.brute_force import (
    QUESTION,
    TASK,
    in_float64,
    is_induction,
    margins_of,
    small,
    smallest_margins,
)

SHIFT = ["own key", "previous key", "own value", "previous value"]


@torch.no_grad()
@pytest.mark.parametrize(
    ("fields", "part", "zero"),
    [
        ({}, "own key", lambda attn: attn.key_shift.weight[:, 0]),
        ({}, "previous value", lambda attn: attn.value_shift.weight[:, 1]),
        ({"n_heads": 2}, "head 1", lambda attn: attn.o_proj.weight[:, 4:]),
        ({"attention": "vanilla"}, "direct path", None),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_the_model_without_a_part_is_judged(fields, part, zero):
    model = small(3, **fields)
    expected = small(3, **fields, **({"residual": False} if zero is None else {}))
    if zero is not None:
        zero(expected.layers[0].attn).zero_()
    certificate = certify(model, TASK, [4], without=[part])
    assert certificate.verdict.endswith(f"without {part}.")
    table = certificate.table.join(smallest_margins(expected, 4, [4]), on=QUESTION)
    assert (table["bound"] - 1e-9 <= table["smallest"]).all()
    assert (table["smallest"] <= table["margin"] + 1e-9).all()
    if "n_heads" not in fields:
        np.testing.assert_allclose(table["bound"], table["smallest"], rtol=0, atol=1e-9)
    assert torch.equal(model.embed.weight, expected.embed.weight)


def test_the_circuit_of_a_model_built_by_hand():
    """Theorem 3.3 reads the key of the token before and the own value, and nothing else."""
    model = kv_shift_induction_head(torch.eye(4), 8, sigma=0.05, slope=0.01, mask="strict")
    assert [part for part in parts_of(model) if part in SHIFT] == SHIFT
    table = certify_circuit(model, ["previous key", "own value"], TASK, range(3, 7))
    # Without the own value all logits are equal: rounding cannot tell such a tie from a right
    # answer.
    assert table["verdict"].tolist() == ["proved", "refuted", "unknown"]
    assert table["sufficient"].tolist()[0] is True
    assert table["necessary"].tolist()[1] is True
    assert table["necessary"].isna().tolist() == [True, False, True]
    tokens = table["counterexample"][1]
    query, answer = tokens[-1], tokens[tokens.index(tokens[-1]) + 1]
    assert is_induction(tokens, query, answer)
    without = in_float64(left_out(model, table["left_out"][1]))
    assert margins_of(without, [tokens], [answer])[0] <= 0
    wrong = certify_circuit(model, ["own key", "own value"], TASK, [3, 4])
    assert wrong["sufficient"].tolist()[0] is False
    assert len(wrong["counterexample"][0]) > 0


def test_a_stored_certificate_names_what_is_left_out(tmp_path):
    model = small(3)
    certificate = certify(
        model, TASK, [3, 4], without=["own key"], path=tmp_path / "proof.safetensors"
    )
    assert certificate.key != certify(model, TASK, [3, 4]).key
    assert check(tmp_path / "proof.safetensors", model) > 0
    with pytest.raises(ConfigError, match="another model"):
        check(tmp_path / "proof.safetensors", small(4))
    with pytest.raises(ConfigError, match="own key"):
        certify(model, TASK, without=["own kee"])
