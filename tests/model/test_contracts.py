"""One table of contracts: what every attention variant does under every option of `ModelConfig`.

In the models of the table (`tests.model.covering`) every variant meets every option, and every two
options meet. No parameter has the value that it starts with. In float64, every model

- equals a loop over tokens (`tests.model.loops`), which has no code of the package;
- is causal: later tokens do not change earlier logits;
- gives the same logits with a hook at every hook point, and its activations fit together;
- decodes in any chunks as in one forward pass, with hooks or without;
- gives the residual stream at some positions as at all, also to hooks, and in each member of a
  stack;
- has the gradients that finite differences give.
"""

from datetime import date
from functools import lru_cache
from typing import NamedTuple

import pytest
import torch
from torch.func import functional_call
from transformer_lens import ActivationCache

from ihlab.model.decode import Decoder
from ihlab.model.query_positions import AT_EVERY_POSITION
from ihlab.model.transformer import Transformer
from ihlab.training.ensemble import of_each_member
from tests.model import covering, loops

N_POS = 9


class Case(NamedTuple):
    """A model in float64, tokens, its logits, and its logits and activations with a hook
    everywhere.
    """

    model: Transformer
    tokens: torch.Tensor
    logits: torch.Tensor
    hooked: torch.Tensor
    cache: ActivationCache


@lru_cache(maxsize=1)  # the contracts of a model follow each other
def made(cfg):
    """Return the case of a config, in which no parameter has the value that it starts with."""
    model, generator = Transformer(cfg).double().eval(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    tokens = torch.randint(cfg.d_vocab, (2, N_POS), generator=generator)
    with torch.no_grad():
        return Case(model, tokens, model(tokens), *model.run_with_cache(tokens))


def same(found, wanted):
    torch.testing.assert_close(found, wanted, atol=1e-10, rtol=1e-9)


def equals_a_loop(case):
    for tokens, wanted in zip(case.tokens, case.logits, strict=True):
        same(torch.from_numpy(loops.logits(case.model, tokens)), wanted)


def is_causal(case):
    changed = case.tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % case.model.cfg.d_vocab
    after = case.model(changed)
    same(after[:, :5], case.logits[:, :5])
    same(case.model(case.tokens[:, :2]), case.logits[:, :2])  # fewer tokens than a window
    assert ((after - case.logits)[:, 5:].abs().amax(dim=-1) > 1e-9 * case.logits.abs().max()).all()


def is_the_same_with_hooks(case):
    same(case.hooked, case.logits)


def says_what_is_computed(case):
    """The pattern reads z from the values, and heads' results are what attention adds."""
    for layer, block in enumerate(case.model.layers):
        seen = case.cache.cache_dict
        seen = {
            name.removeprefix(at): seen[name]
            for name in seen
            if name.startswith(at := f"blocks.{layer}.attn.hook_")
        }
        pattern = seen["pattern"]
        v = seen["v"].repeat_interleave(block.attn.n_heads // seen["v"].shape[2], dim=2)
        same(torch.einsum("bhqk,bkhd->bqhd", pattern, v), seen["z"])
        same(seen["attn_scores"].softmax(dim=-1).nan_to_num(0), pattern)
        if "O" not in block.canon:
            same(seen["result"].sum(dim=2) + block.attn.b_O, case.cache["attn_out", layer])


def decodes_in_chunks(case):
    for sizes, hooked in (([1, 1, 1, 1, 2, 3], False), ([4, 1, 4], True)):
        decoder = Decoder(case.model, 2, N_POS)
        with case.model.hooks(fwd_hooks=[(lambda _: True, lambda x, hook: None)] if hooked else []):
            chunks = [decoder.forward(chunk) for chunk in case.tokens.split(sizes, dim=1)]
        same(torch.cat(chunks, dim=1), case.logits)


# Scored positions of both sequences, one of them twice, and positions that are not scored.
INDEX, QUERIES = torch.tensor([4, 0, 17, 4]), torch.tensor([[0, 4, 4], [8, 2, 5]])


def gathers_queries(case):
    model, seen = case.model, {}
    wanted = model.final_residual(case.tokens).flatten(0, 1)[INDEX]
    same(model.residual_at(case.tokens, INDEX), wanted)
    same(model.residual_at(case.tokens, INDEX, QUERIES), wanted)
    names = [
        name for name in model.hook_dict if name.removeprefix("blocks.1.") in AT_EVERY_POSITION
    ]
    with model.hooks(
        fwd_hooks=[(name, lambda x, hook: seen.update({hook.name: x})) for name in names]
    ):
        same(model.residual_at(case.tokens, INDEX, QUERIES), wanted)
    assert seen.keys() == set(names)
    for name, x in seen.items():
        same(x, case.cache[name])


def stacks(case):
    """With another member, whose weights and tokens are others."""
    model, other = case.model, {name: 0.9 * p for name, p in case.model.named_parameters()}
    weights = {name: torch.stack([p, other[name]]) for name, p in model.named_parameters()}
    tokens = torch.stack([case.tokens, case.tokens.flip(1)])
    at = [torch.stack([each, each]) for each in (INDEX, QUERIES)]
    stacked = of_each_member(
        model, lambda model, *arguments: model.unembed(model.residual_at(*arguments))
    )
    found = stacked(weights, tokens, *at)
    same(found[0], case.logits.flatten(0, 1)[INDEX])
    same(found[1], functional_call(model, other, (tokens[1],)).flatten(0, 1)[INDEX])


def has_gradients_of_finite_differences(case):
    """Along one random direction of all parameters, of logits everywhere and of the stream at some
    positions.
    """
    generator, model = torch.Generator().manual_seed(2), case.model
    at = torch.randn(case.logits.shape, generator=generator, dtype=torch.float64)

    def value():
        return (model(case.tokens) * at).sum() + model.residual_at(
            case.tokens, INDEX, QUERIES
        ).square().sum()

    weights = list(model.parameters())
    gradients = torch.autograd.grad(value(), weights)
    along = [
        torch.randn(weight.shape, generator=generator, dtype=torch.float64) for weight in weights
    ]
    values = []
    with torch.no_grad():
        for step in (1e-6, -2e-6, 1e-6):
            torch._foreach_add_(weights, along, alpha=step)
            values.append(value())
    slope = sum((gradient * each).sum() for gradient, each in zip(gradients, along, strict=True))
    torch.testing.assert_close((values[0] - values[1]) / 2e-6, slope, atol=1e-5, rtol=1e-5)


CONTRACTS = (
    equals_a_loop, is_causal, is_the_same_with_hooks, says_what_is_computed, decodes_in_chunks, gathers_queries,
    stacks, has_gradients_of_finite_differences,
)  # fmt: skip


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
@pytest.mark.parametrize("model", list(covering.pairs()), ids=covering.title)
def test_every_model_keeps_the_contract(model, contract, request):
    if not covering.title(model).endswith("-plain"):  # checks of shapes take longer than all else
        request.getfixturevalue("unchecked")
    contract(made(covering.config(model)))


@pytest.mark.rare
@pytest.mark.parametrize("number", range(400))
def test_the_models_drawn_for_this_day_keep_all_contracts(number, unchecked):
    model = covering.drawn(f"{date.today()}, {number}")
    for contract in CONTRACTS:
        try:
            contract(made(covering.config(model)))
        except Exception as error:
            error.add_note(f"The model is {model}, and the contract {contract.__name__}.")
            raise
