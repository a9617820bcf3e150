"""Operands: which tokens are copies of which, marked by hand, and heads that are made to attend
there.
"""

import numpy as np
import pytest

from figures.table4.operands import fetches, operand_attention
from ihlab.model.config import ModelConfig
from ihlab.model.transformer import Transformer
from tasks import ConfigError, IGSMTask

TASK = IGSMTask(difficulty="toy", format="compact", ops="4", length=120)


def test_pairs_by_hand():
    """An operand that is a pair is copied from the sentence; a total's parts, which none names,
    from the solution.
    """
    row = (
        "<bos> Frigate/AppleCrate = 5/1 + Cruiser/PearCrate/2 . Cruiser/PearCrate = 3/3 . Frigate/Crates ? <sol> "
        "Cruiser/PearCrate/4 ; Cruiser/PearCrate/5 =/6 3/7 . "
        "Frigate/AppleCrate/8 ; Frigate/AppleCrate/9 =/10 5 +/11 Cruiser/PearCrate = 5 +/12 3 = 1/13 . "
        "Frigate/Crates ; Frigate/Crates =/14 Frigate/AppleCrate =/15 1 . <ans> 1 <eos>"
    )
    marked = [
        word.rpartition("/") if word[-1].isdigit() and "/" in word else (word, "", "")
        for word in row.split()
    ]
    tokens = [word for word, _, _ in marked]
    place = {int(number): at for at, (_, _, number) in enumerate(marked) if number}
    assert fetches(tokens) == [
        ("sentence", place[6], (place[3],)),
        ("sentence", place[10], (place[1],)),
        ("sentence", place[11], (place[2],)),
        ("value", place[12], (place[7],)),
        ("letter", place[14], (place[8], place[9])),
        ("value", place[15], (place[13],)),
    ]


def test_every_copy_of_generated_rows_is_one():
    problems = TASK.prompts(50, np.random.default_rng(0))
    for ids in problems.tokens:
        tokens = TASK.decode(ids)
        found = fetches(tokens)
        assert all({tokens[key] for key in keys} == {tokens[query + 1]} for _, query, keys in found)
        assert all(max(keys) <= query for _, query, keys in found)


def test_no_solution_and_no_operands():
    with pytest.raises(ConfigError, match="no '<sol>'"):
        fetches(["<bos>"])
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=TASK.vocab_size, n_ctx=120)
    drawn = TASK.prompts(200, np.random.default_rng(0), ops=1)
    constants = drawn.only(drawn.size == drawn.size.min())  # each has one sentence, a constant
    with pytest.raises(ConfigError, match="No solution has an operand"):
        operand_attention(Transformer(cfg), TASK, constants)
