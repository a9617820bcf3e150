"""Caches of a shifted model against one forward pass over the whole sequence, without a cache."""

import pickle

import pytest
import torch
from transformers import CompileConfig, DynamicCache, StaticCache

from ihlab.hf import unshifted
from ihlab.hf.conformance.compare import counted
from ihlab.hf.conformance.suite import prepared
from tests.hf.conftest import maker

ROWS, PROMPT, NEW = 2, 7, 8
IDS = torch.randint(1, 50, (ROWS, PROMPT + NEW), generator=torch.Generator().manual_seed(0))
LEFT = torch.ones_like(IDS)
LEFT[1, :3] = 0
SHIFTS = {
    "llama": ("llama", {}),
    "sliding": ("mistral", {"window": 3, "first": "own"}),  # its window of 6 is shorter than the prompt
    "partial": ("qwen3", {"rule": "partial_key_offset"}),
}
shifts = pytest.mark.parametrize("shift", SHIFTS)
padding = pytest.mark.parametrize("padded", [False, True])


def shifted(name):
    family, options = SHIFTS[name]
    return prepared(maker(family, **options))


def whole(model, ids, mask):
    return model(ids, attention_mask=mask, position_ids=counted(mask), use_cache=False).logits


def greedy(model, prompt, mask):
    for _ in range(NEW):
        best = whole(model, prompt, mask)[:, -1].argmax(-1, keepdim=True)
        prompt, mask = torch.cat([prompt, best], 1), torch.cat([mask, torch.ones_like(best)], 1)
    return prompt


@shifts
@padding
@torch.no_grad()
def test_static_cache_generates_as_without_a_cache(shift, padded):
    model = shifted(shift)
    prompt, mask = IDS[:, :PROMPT], (LEFT if padded else torch.ones_like(LEFT))[:, :PROMPT]
    found = model.generate(prompt, attention_mask=mask, max_new_tokens=NEW, cache_implementation="static")
    assert torch.equal(found, greedy(model, prompt, mask))


@pytest.mark.slow
@pytest.mark.parametrize("shift", ["llama", "sliding"])
@torch.no_grad()
def test_compiled_generation_compiles_as_often_as_without_a_shift(shift):
    """With `fullgraph=True`, for prompts with and without padding, of two lengths."""
    assert graphs(shifted(shift)) == graphs(unshifted(shifted(shift)))


def graphs(model):
    """Return how many graphs three generations compile; each must write what greedy decoding without a cache does."""
    torch.compiler.reset()
    compiled = []
    options = CompileConfig(fullgraph=True, backend=lambda graph, _, **__: compiled.append(graph) or graph.forward)
    options._compile_all_devices = True
    given = {"compile_config": options, "max_cache_len": 32, "cache_implementation": "static"}
    for start, mask in ((0, torch.ones_like(LEFT)), (0, LEFT), (2, torch.ones_like(LEFT))):
        prompt, seen = IDS[:, start:PROMPT], mask[:, start:PROMPT]
        found = model.generate(prompt, attention_mask=seen, max_new_tokens=NEW, **given)
        assert torch.equal(found, greedy(model, prompt, seen))
    return len(compiled)


@shifts
@padding
@torch.no_grad()
def test_recorded_tokens_can_be_removed(shift, padded):
    """Recording begins before anything is read; tokens are removed and others read, three times."""
    model = shifted(shift)
    cache = DynamicCache(config=model.config)
    cache.activate_past_recording()
    mask = LEFT if padded else torch.ones_like(LEFT)
    read, end = torch.zeros(ROWS, 0, dtype=torch.long), 0
    for n, gone in ((PROMPT, 1), (4, 3), (3, 0), (2, 2)):
        new = IDS[:, end : end + n] + len(read[0]) % 2
        read, end = torch.cat([read, new], 1), end + n
        given = {"attention_mask": mask[:, :end], "position_ids": counted(mask[:, :end])[:, -n:]}
        found = model(new, past_key_values=cache, **given).logits
        right = whole(model, read, mask[:, :end])[:, -n:]
        real = mask[:, end - n : end].bool()
        torch.testing.assert_close(found[real], right[real], atol=1e-5, rtol=1e-5)
        cache.crop(-gone)
        cache = pickle.loads(pickle.dumps(cache))
        read, end = read[:, : end - gone], end - gone


@pytest.mark.parametrize("additive", [False, True])
@torch.no_grad()
def test_a_mask_of_queries_and_keys_may_hold_a_tree(additive):
    """Each path from the root is what its tokens give alone; the tree's root is the last of three cached tokens."""
    model = prepared(maker(window=3))
    parents = [-1, -1, 0, 2, 0, 1, 3, 5]  # of token i: its place among the new ones, or -1, the root
    depths: list[int] = []
    seen = torch.eye(len(parents), dtype=torch.bool)
    for token, parent in enumerate(parents):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        if parent >= 0:
            seen[token] |= seen[parent]
    root, tree = IDS[:1, :3], IDS[:1, 3 : 3 + len(parents)]
    mask = torch.cat([torch.ones(len(parents), 3, dtype=torch.bool), seen], 1)[None, None]
    if additive:
        mask = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    cache = model(root).past_key_values
    positions = 3 + torch.tensor([depths])
    found = model(tree, attention_mask=mask, position_ids=positions, past_key_values=cache).logits
    for token in range(len(parents)):
        path = torch.cat([root, tree[:, seen[token]]], 1)
        torch.testing.assert_close(found[:, token], model(path).logits[:, -1], atol=1e-5, rtol=1e-5)


@padding
@torch.no_grad()
def test_a_static_cache_reads_chunks(padded):
    model = shifted("sliding")
    cache, mask = StaticCache(model.config, max_cache_len=PROMPT + NEW), LEFT if padded else torch.ones_like(LEFT)
    found, end = [], 0
    for chunk in IDS.split([4, 1, 5, 5], 1):
        end += chunk.shape[1]
        given = {"attention_mask": mask[:, :end], "position_ids": counted(mask[:, :end])[:, -chunk.shape[1] :]}
        found.append(model(chunk, past_key_values=cache, **given).logits)
    right = whole(model, IDS, mask)
    torch.testing.assert_close(torch.cat(found, 1)[mask.bool()], right[mask.bool()], atol=1e-5, rtol=1e-5)
