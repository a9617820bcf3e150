"""Caches of a shifted model against one forward pass over the whole sequence, without a cache."""

import pytest
import torch
from transformers import CompileConfig

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
