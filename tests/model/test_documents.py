"""Packed documents: each has the logits that it has alone, and misuse is refused."""

import pytest
import torch

from ihlab.model.config import ModelConfig
from tasks import ConfigError
from tests.model.covering import BUILT_IN, OPTIONS, SIZES
from tests.model.test_contracts import INDEX, QUERIES, made

STARTS = torch.zeros(2, 9, dtype=torch.bool)
STARTS[0, [0, 4, 6]] = True  # three documents, one of them shorter than a window of three
STARTS[1, [3, 8]] = True  # the end of a document, a whole one, and one of a single token

OF_KV_SHIFT = {
    "positions": ("alibi", "learned positions"),
    "mask": ("strict",),
    "stream": ("stream before the norm", "stream added"),
    "smear": ("smeared embedding",),
    "first": ("first own",),
}
"""Values of options (`covering.OPTIONS`) that change what a shifted model reads."""
CASES = {
    **{variant: {"attention": variant} for variant in BUILT_IN},
    **{name: fields for name, fields in OPTIONS["canon"].items() if fields},
    "qkv_shift, window 4": {"attention": "qkv_shift", "shift_window": 4},
}
for option, values in OF_KV_SHIFT.items():
    for value in values:
        CASES[f"kv_shift, {value}"] = {"attention": "kv_shift", **OPTIONS[option][value]}


def alone(model, tokens, starts):
    """Return the logits of every document of every sequence, each in a forward pass of its own."""
    rows = []
    for row, begins in zip(tokens, starts, strict=True):
        cuts = begins.nonzero().flatten().tolist()
        documents = row.tensor_split(cuts)
        rows.append(
            torch.cat([model(document[None])[0] for document in documents if len(document)])
        )
    return torch.stack(rows)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_a_packed_document_has_the_logits_that_it_has_alone_or_the_model_is_refused(name):
    cfg = ModelConfig(**{**SIZES, "d_head": 8, **CASES[name]})
    case = made(cfg)
    if cfg.positional == "learned":
        with pytest.raises(ConfigError, match="packed documents"):
            case.model(case.tokens, document_starts=STARTS)
        return
    wanted = alone(case.model, case.tokens, STARTS)
    assert (wanted - case.logits).abs().max() > 1e-3
    hooked, _ = case.model.run_with_cache(case.tokens, document_starts=STARTS)
    at = case.model.unembed(case.model.residual_at(case.tokens, INDEX, QUERIES, STARTS))
    before = case.model(case.tokens, stop_at_layer=1, document_starts=STARTS)
    after = case.model(before, start_at_layer=1, document_starts=STARTS)
    for logits in (hooked, after, case.model(case.tokens, document_starts=STARTS)):
        torch.testing.assert_close(logits, wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(at, wanted.flatten(0, 1)[INDEX], atol=1e-6, rtol=0)


def test_a_loss_that_would_cross_documents_is_refused():
    case = made(ModelConfig(**{**SIZES, "attention": "kv_shift"}))
    with pytest.raises(ConfigError, match="would cross the borders of documents: take 'logits'"):
        case.model(case.tokens, return_type="loss", document_starts=STARTS)


@pytest.mark.parametrize("starts", [STARTS[:1], STARTS.long()])
def test_starts_that_do_not_mark_each_token_are_refused(starts):
    case = made(ModelConfig(**{**SIZES, "attention": "kv_shift"}))
    with pytest.raises(ConfigError, match=r"document_starts must be a tensor of bool, \[2, 9\]"):
        case.model(case.tokens, document_starts=starts)
