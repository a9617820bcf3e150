"""Packed documents: each has the logits that it has alone, a leak is found where it must be, and
misuse is refused.
"""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ihlab.model.config import ModelConfig
from ihlab.model.documents import packed
from tasks import ConfigError
from tests.model.covering import BUILT_IN, OPTIONS, SIZES
from tests.model.test_contracts import INDEX, QUERIES, made

STARTS = torch.zeros(2, 9, dtype=torch.bool)
STARTS[0, [0, 4, 6]] = True  # three documents, one of them shorter than a window of three
STARTS[1, [3, 8]] = True  # the end of a document, a whole one, and one of a single token

REFUSED = {"multi_token", "gated_linear", "gated_delta", "trapezoid", "delta_hybrid"}
CASES = {
    **{variant: {"attention": variant} for variant in BUILT_IN},
    **{
        f"kv_shift, {name}": {"attention": "kv_shift", **fields}
        for option, values in OPTIONS.items()
        if option not in ("attention", "canon", "window")
        for name, fields in values.items()
    },
    **{f"canon, {name}": fields for name, fields in OPTIONS["canon"].items()},
    **{
        f"qkv_shift, {name}": {"attention": "qkv_shift", **fields}
        for name, fields in OPTIONS["window"].items()
    },
}


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
    if cfg.attention in REFUSED or cfg.positional == "learned":
        with pytest.raises(ConfigError, match="packed documents"), packed(case.model, STARTS):
            pass
        return
    wanted = alone(case.model, case.tokens, STARTS)
    assert (wanted - case.logits).abs().max() > 1e-3
    with packed(case.model, STARTS):
        found, (hooked, _) = case.model(case.tokens), case.model.run_with_cache(case.tokens)
        at = case.model.unembed(case.model.residual_at(case.tokens, INDEX, QUERIES))
    before = case.model(case.tokens, stop_at_layer=1, document_starts=STARTS)
    after = case.model(before, start_at_layer=1, document_starts=STARTS)
    for logits in (found, hooked, after, case.model(case.tokens, document_starts=STARTS)):
        torch.testing.assert_close(logits, wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(at, wanted.flatten(0, 1)[INDEX], atol=1e-6, rtol=0)
    torch.testing.assert_close(
        case.model(case.tokens), case.logits, atol=0, rtol=0
    )  # nothing of it stays


@torch.no_grad()
def test_all_leaks_together_are_whole_sequences_and_each_alone_is_not():
    case = made(ModelConfig(**{**SIZES, "attention": "kv_shift", "shift_first": "own"}))
    leaks = {"whole": case.logits}
    for leak in ("none", "shift", "attention", "both"):
        with packed(case.model, STARTS, leak):
            leaks[leak] = case.model(case.tokens)
    torch.testing.assert_close(leaks.pop("both"), leaks["whole"], atol=1e-6, rtol=0)
    assert all(
        (leaks[one] - leaks[two]).abs().max() > 1e-3 for one in leaks for two in leaks if one < two
    )


def test_a_cache_is_refused_while_packed_documents_are_read():
    model = made(ModelConfig(**{**SIZES, "attention": "kv_shift"})).model
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    with (
        packed(model, STARTS[:1]),
        pytest.raises(ConfigError, match="A KV cache continues whole sequences"),
    ):
        model.generate(tokens, 1)
    assert model.generate(tokens, 1).shape == (1, 4)


@torch.no_grad()
def test_only_the_named_model_in_its_thread_reads_packed_documents():
    """Another model, a copy, and another thread read whole sequences; so does an inner `packed`
    without documents.
    """
    case = made(ModelConfig(**{**SIZES, "attention": "kv_shift"}))
    model, tokens, other = (
        case.model,
        case.tokens,
        made(ModelConfig(**{**SIZES, "attention": "gated_delta"})),
    )
    with packed(model, STARTS), ThreadPoolExecutor(max_workers=1) as thread:
        for logits in (
            thread.submit(torch.no_grad()(model), tokens).result(),
            copy.deepcopy(model)(tokens),
        ):
            assert torch.equal(logits, case.logits)
        assert torch.equal(other.model(other.tokens), other.logits)
        other.model.generate(tokens[:, :3], 2)
        with packed(model, None):
            assert torch.equal(model(tokens), case.logits)
        reset = model(tokens)
    with packed(torch.compile(model, backend="eager"), STARTS, "none"):  # the model inside is meant
        assert torch.equal(model(tokens), reset)
    assert not torch.equal(reset, case.logits)


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (STARTS[:1], r"document_starts is \[1, 9\], but must be \[2, 9\]"),
        (STARTS.long(), "document_starts must be a tensor of bool"),
    ],
)
def test_starts_that_do_not_mark_each_token_are_refused(starts, message):
    case = made(ModelConfig(**{**SIZES, "attention": "kv_shift"}))
    with pytest.raises(ConfigError, match=message):
        case.model(case.tokens, document_starts=starts)
    with pytest.raises(ConfigError, match=message), packed(case.model, starts):
        case.model(case.tokens)
