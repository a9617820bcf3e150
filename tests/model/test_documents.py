"""Packed documents: each has the logits that it has alone, a leak is found where it must be, and misuse is refused."""

import pytest
import torch

from ihlab.model.config import ModelConfig
from ihlab.model.documents import packed
from ihlab.model.variants import VARIANTS
from tasks import ConfigError
from tests.model.test_contracts import INDEX, OPTIONS, OWN_OPTIONS, QUERIES, SHIFT_OPTIONS, SIZES, made

STARTS = torch.zeros(2, 9, dtype=torch.bool)
STARTS[0, [0, 4, 6]] = True  # three documents, one of them shorter than a window of three
STARTS[1, [3, 8]] = True  # the end of a document, a whole one, and one of a single token

REFUSED = {"selective", "multi_token", "gated_linear", "gated_delta", "trapezoid"}
CASES = {
    **{variant: {"attention": variant} for variant in VARIANTS},
    **{
        f"kv_shift, {name}": {"attention": "kv_shift", **fields}
        for name, fields in OPTIONS.items()
        if "canon" not in fields
    },
    **{f"canon, {name}": fields for name, fields in OPTIONS.items() if "canon" in fields},
    **{f"qkv_shift, {name}": {"attention": "qkv_shift", **fields} for name, fields in SHIFT_OPTIONS.items()},
    **{f"mla_kv, {name}": {"attention": "mla_kv", **fields} for name, fields in OWN_OPTIONS["mla_kv"].items()},
}


def alone(model, tokens, starts):
    """Return the logits of every document of every sequence, each in a forward pass of its own."""
    rows = []
    for row, begins in zip(tokens, starts, strict=True):
        cuts = begins.nonzero().flatten().tolist()
        documents = row.tensor_split(cuts)
        rows.append(torch.cat([model(document[None])[0] for document in documents if len(document)]))
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
    for logits in (found, hooked):
        torch.testing.assert_close(logits, wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(at, wanted.flatten(0, 1)[INDEX], atol=1e-6, rtol=0)
    torch.testing.assert_close(case.model(case.tokens), case.logits, atol=0, rtol=0)  # nothing of it stays


LEAKS = {
    "k_shift": {"attention": "k_shift"},
    "v_shift": {"attention": "v_shift"},
    "v_shift, first own": {"attention": "v_shift", "shift_first": "own"},
    "key_offset": {"attention": "key_offset"},
    "smear": {"smear": "embedding"},
    "canon V": {"canon": "V", "canon_taps": 2},
    "stream": {"stream_shift": "added"},
    "bigrams": {"bigram_table": 17},
}


@pytest.mark.parametrize("name", LEAKS)
@torch.no_grad()
def test_a_leak_of_shifts_changes_documents_by_the_last_token_before_them_alone(name):
    """In one layer only the vectors of a document's first token differ, and only by the token before it."""
    cfg = ModelConfig(**{**SIZES, "n_layers": 1, **LEAKS[name]})
    reset, model = made(cfg).model, made(cfg.replace(document_leak="shift")).model
    model.load_state_dict(reset.state_dict())
    tokens = made(cfg).tokens

    def differs(by):
        """Return where keys, values or stream differ from those without a leak, or with another token before."""
        changed = tokens.clone()
        changed[:, by] = (changed[:, by] + 1) % cfg.d_vocab
        with packed(model, STARTS):
            (plain, one), (other, two) = model.run_with_cache(tokens), model.run_with_cache(changed)
        with packed(reset, STARTS):
            _, zero = reset.run_with_cache(tokens)
        names = ("blocks.0.attn.hook_k", "blocks.0.attn.hook_v", "blocks.0.hook_resid_pre")
        moved, leaked = (
            sum((one[name] - side[name]).flatten(2).abs().sum(dim=2) for name in names) > 1e-9 for side in (two, zero)
        )
        return moved[0], leaked[0], (plain - other)[0].abs().amax(dim=1) > 1e-9

    moved, leaked, logits = differs(5)
    assert leaked.nonzero().flatten().tolist() == [4, 6]  # the first tokens of the documents after the first one
    assert moved.nonzero().flatten().tolist() == [5, 6]
    alone_at_first = name in ("k_shift", "key_offset")  # its only key gets all attention, whatever the key is
    assert logits.nonzero().flatten().tolist() == [5, *([] if alone_at_first else [6]), 7, 8]
    assert not differs(3)[2][6:].any()  # the first document is not right before the third


@torch.no_grad()
def test_a_leak_of_attention_and_of_both():
    cfg = ModelConfig(**{**SIZES, "attention": "kv_shift", "shift_first": "own"})
    case = made(cfg)
    leaks = {}
    for leak in ("none", "shift", "attention", "both"):
        model = made(cfg.replace(document_leak=leak)).model
        model.load_state_dict(case.model.state_dict())
        with packed(model, STARTS):
            leaks[leak] = model(case.tokens)
    torch.testing.assert_close(leaks["both"], case.logits, atol=1e-6, rtol=0)
    assert all((leaks[one] - leaks[two]).abs().max() > 1e-3 for one in leaks for two in leaks if one < two)


def test_a_cache_is_refused_while_packed_documents_are_read():
    model = made(ModelConfig(**{**SIZES, "attention": "kv_shift"})).model
    tokens = torch.zeros(1, 9, dtype=torch.int64)
    with packed(model, STARTS[:1]), pytest.raises(ConfigError, match="A KV cache continues whole sequences"):
        model.generate(tokens, 1)
    assert model.generate(tokens[:, :3], 1).shape == (1, 4)
