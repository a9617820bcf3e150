"""Caches of a shifted model against one forward pass over the whole sequence, without a cache."""

import pytest
import torch
from transformers import CompileConfig, DynamicCache, StaticCache

from ihlab import ConfigError
from ihlab.hf import unshifted
from ihlab.hf.conformance.compare import counted
from ihlab.hf.conformance.suite import prepared
from tests.hf.conftest import maker

ROWS, PROMPT, NEW = 2, 7, 8
IDS = torch.randint(1, 50, (ROWS, PROMPT + NEW), generator=torch.Generator().manual_seed(0))
LEFT = torch.ones_like(IDS)
LEFT[1, :3] = 0


def whole(model, ids, mask):
    return model(ids, attention_mask=mask, position_ids=counted(mask), use_cache=False).logits


def greedy(model, prompt, mask):
    for _ in range(NEW):
        best = whole(model, prompt, mask)[:, -1].argmax(-1, keepdim=True)
        prompt, mask = torch.cat([prompt, best], 1), torch.cat([mask, torch.ones_like(best)], 1)
    return prompt


@pytest.mark.slow
@torch.no_grad()
def test_compiled_generation_compiles_as_often_as_without_a_shift():
    """With `fullgraph=True`, for prompts with and without padding, of two lengths, which the
    sliding window of 6 is shorter than.
    """
    model = prepared(maker("mistral", window=3, first="own"))
    assert graphs(model) == graphs(unshifted(model))


def graphs(model):
    """Return how many graphs three generations compile; each must write what greedy decoding
    without a cache does.
    """
    torch.compiler.reset()
    compiled = []
    options = CompileConfig(
        fullgraph=True, backend=lambda graph, _, **__: compiled.append(graph) or graph.forward
    )
    options._compile_all_devices = True
    given = {"compile_config": options, "max_cache_len": 32, "cache_implementation": "static"}
    for start, mask in ((0, torch.ones_like(LEFT)), (0, LEFT), (2, torch.ones_like(LEFT))):
        prompt, seen = IDS[:, start:PROMPT], mask[:, start:PROMPT]
        found = model.generate(prompt, attention_mask=seen, max_new_tokens=NEW, **given)
        assert torch.equal(found, greedy(model, prompt, seen))
    return len(compiled)


STATIC = 16
"""Size of static caches."""
LOWEST = torch.finfo(torch.float32).min


class Forest:
    """One tree of continuations for each row of a cache. A token is right if it is what its path
    gives alone.
    """

    def __init__(self, model, prompt, cache):
        self.model, self.cache, self.ids = model, cache, prompt
        mask = {"attention_mask": torch.ones(1, 1, *[prompt.shape[1]] * 2).tril().bool()}
        model(prompt, past_key_values=cache, **(mask if isinstance(cache, DynamicCache) else {}))
        self.paths = [[list(range(token + 1)) for token in range(prompt.shape[1])] for _ in prompt]

    def grow(self, ids, parents):
        """Read one token after each parent, and compare it. `parents`: for each row, the parents'
        columns.
        """
        start, n = self.ids.shape[1], ids.shape[1]
        visible = torch.zeros(len(ids), n, start + n, dtype=torch.bool)
        positions = torch.zeros_like(ids)
        for row, paths in enumerate(self.paths):
            for token, parent in enumerate(parents[row]):
                paths.append([*paths[parent], start + token])
                visible[row, token, paths[-1]] = True
                positions[row, token] = len(paths[-1]) - 1
        if isinstance(self.cache, StaticCache):
            visible = torch.nn.functional.pad(visible, (0, STATIC - start - n))
        bias = torch.where(visible, 0.0, LOWEST)[:, None]
        given = {"attention_mask": bias, "position_ids": positions, "past_key_values": self.cache}
        found = self.model(ids, **given)
        self.ids = torch.cat([self.ids, ids], 1)
        for row, paths in enumerate(self.paths):
            for token in range(n):
                alone = self.model(
                    self.ids[row : row + 1, paths[start + token]], use_cache=False
                ).logits[:, -1]
                torch.testing.assert_close(
                    found.logits[row : row + 1, token], alone, atol=1e-5, rtol=1e-5
                )

    def crop(self, n):
        self.cache.crop(-n)
        self.ids = self.ids[:, :-n]
        self.paths = [paths[:-n] for paths in self.paths]


@pytest.mark.parametrize(("window", "first"), [(2, "zero"), (4, "own")])
@torch.no_grad()
def test_each_cached_token_of_a_tree_may_be_continued(window, first):
    """Also an earlier branch, or one in a prompt; after tokens are taken back, and after rows are
    reordered.
    """
    model = prepared(maker("qwen3", window=window, first=first))
    cache = DynamicCache(config=model.config)
    cache.activate_past_recording()
    forest = Forest(model, IDS[:, :4], cache)
    forest.grow(IDS[:, 4:6], [[3, 3], [3, 1]])
    forest.grow(IDS[:, 6:9], [[4, 5, 4], [5, 4, 0]])
    forest.crop(2)
    cache.activate_past_recording()
    forest.grow(IDS[:, 9:11], [[4, 6], [6, 7]])
    cache.reorder_cache(torch.tensor([1, 0]))
    forest.ids, forest.paths = forest.ids.flip(0), forest.paths[::-1]
    forest.grow(IDS[:, 11:], [[2, 6, 7, 11], [3, 5, 8, 8]])


@torch.no_grad()
def test_a_mask_that_goes_back_to_what_is_not_stored_is_refused():
    model = prepared(maker())
    forest = Forest(model, IDS[:, :4], StaticCache(model.config, max_cache_len=STATIC))
    forest.grow(IDS[:, 4:5], [[3], [3]])
    with pytest.raises(ConfigError, match=r"^attention_mask continues an earlier token"):
        forest.grow(IDS[:, 5:6], [[3], [3]])  # a static cache has the vectors of the last token
    cache = model(
        IDS[:, :4]
    ).past_key_values  # read without such a mask, so only its last token may be continued
    mask = torch.tensor([True, True, False, False, True])[None, None, None]
    with pytest.raises(ConfigError, match=r"^attention_mask continues an earlier token"):
        model(IDS[:, 4:5], attention_mask=mask, past_key_values=cache)
