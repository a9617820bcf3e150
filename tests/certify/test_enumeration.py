"""Certificates against every sequence, for every option that they accept, also where attention is
nearly saturated.
"""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from ihlab import InductionTask
from ihlab.certify import certify
from tests.certify.brute_force import QUESTION, in_float64, margins_of, small, smallest_margins

TURNS = {"rotary_frequencies": (0.7, 0.1, 0.05, 2.0), "rotary_scale": 1.2}
OPTIONS = [
    {},
    {"positional": "alibi"},
    {"positional": "rope"},
    {"positional": "rope", **TURNS},
    {"positional": "learned"},
    {"attention": "k_shift"},
    {"attention": "v_shift"},
    {"attention": "vanilla"},
    {"attention": "kv_gate"},
    {"attention": "kv_sum1"},
    {"attention": "kv_clip"},
    {"norm": "none"},
    {"residual": False},
    {"tied_embeddings": True},
    {"mask": "strict"},
    {"mask": "strict", "positional": "learned"},
    {"bias": True},
    {"shift_first": "own"},
    {"d_vocab": 6},
    {"n_heads": 2},
    {"n_heads": 2, "n_key_value_heads": 1, "positional": "alibi"},
    {"n_heads": 4, "n_key_value_heads": 2},
    {"n_heads": 2, "positional": "learned"},
    {"n_heads": 2, "positional": "rope"},
    {"mlp": "swiglu"},
    {"mlp": "swiglu", "n_heads": 2, "positional": "rope"},
]
SHARPER = [("q_proj", 10), ("q_proj", 100), ("q_proj", 1000)]
"""Query weights times these: masses of e^-1000 are 0 in float64, and still decide a margin."""
LARGER = [("embed", 1e-6), ("embed", 1e-3), ("embed", 1e3), ("embed", 1e6)]
FAULTS = (
    "false proofs",
    "false refutations",
    "bounds above the truth",
    "margins below the truth",
    "bounds above their margins",
    "margins below those of their sequences",
)


@torch.no_grad()
def found(fields, change, seed, vocabulary, lengths):
    """The table of a certificate of a changed random model, with the truth."""
    model = small(seed, **{"d_vocab": vocabulary, "n_ctx": max(lengths), **fields})
    name, factor = change
    {"q_proj": model.layers[0].attn.q_proj, "embed": model.embed}[name].weight.mul_(factor)
    task = InductionTask(vocab_size=vocabulary, length=3, min_token=0)
    table, truth = certify(model, task, lengths).table, smallest_margins(model, vocabulary, lengths)
    assert len(table) == len(truth)
    table, double = table.join(truth, on=QUESTION), in_float64(model)
    for _, rows in table.groupby("length"):
        tokens, answers = rows["worst"].tolist(), rows["answer"].tolist()
        table.loc[rows.index, "of_worst"], _ = margins_of(double, tokens, answers)
    return table


def counted(table):
    """How many rows there are, how many are unknown, and how many have each fault."""
    off, margin = 1e-9 * (1 + table["size"]), table["margin"]
    faults = (
        (table["verdict"] == "proved") & (table["smallest"] < -off),
        (table["verdict"] == "refuted") & (table["smallest"] > off),
        table["bound"] > table["smallest"] + off,
        margin < table["smallest"] - off,
        ~(table["bound"] <= margin),
        margin < table["of_worst"] - off,
    )
    counts = Counter(rows=len(table), unknown=int((table["verdict"] == "unknown").sum()))
    counts.update({name: int(fault.sum()) for name, fault in zip(FAULTS, faults, strict=True)})
    return counts


@pytest.mark.parametrize("number", range(len(OPTIONS)), ids=lambda number: str(OPTIONS[number]))
def test_no_row_is_false(number):
    """Each option as it is, where one head's bounds are the smallest margins, and changed in one of
    seven ways.
    """
    fields, changes = OPTIONS[number], SHARPER + LARGER
    table = found(fields, ("q_proj", 1), 1, 4, [3, 4, 5])
    np.testing.assert_allclose(table["margin"], table["of_worst"], rtol=0, atol=1e-11)
    if fields.get("n_heads", 1) == 1 and "mlp" not in fields:
        np.testing.assert_allclose(table["bound"], table["smallest"], rtol=0, atol=1e-11)
        assert (table["verdict"] != "unknown").all()
    changed = found(fields, changes[number % len(changes)], 7, 4, [3, 5])
    counts = counted(table) + counted(changed)
    assert counts["rows"] == 60
    assert [counts[name] for name in FAULTS] == [0] * len(FAULTS)


@pytest.mark.rare
@pytest.mark.parametrize("seed", range(4))
def test_no_row_of_a_campaign_is_false(seed, capsys):
    """Every option, changed in every way, with V = 4 up to 5 tokens or V = 3 up to 7."""
    counts = Counter()
    changes = [("q_proj", 1), *SHARPER, *LARGER]
    for (number, fields), change in product(enumerate(OPTIONS), changes):
        short = (seed + number) % 2 == 0 or "d_vocab" in fields
        vocabulary, lengths = (4, [3, 4, 5]) if short else (3, [3, 4, 5, 6, 7])
        counts += counted(found(fields, change, 100 * seed + number, vocabulary, lengths))
    with capsys.disabled():
        print(f"\nseed {seed}:", dict(counts))
    assert counts["rows"] > 5000
    assert not {*FAULTS} & {*counts}
