"""A pretrained model, SmolLM2-135M-Instruct, against plain transformers code. `make real` downloads
it.
"""

import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ihlab.interp import locate_induction_heads
from ihlab.interp.ablation import ablate_together
from ihlab.interp.sources import opened_model
from ihlab.measure.probe import repeated_batch
from tests.real.fetch import FOLDER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.exists(), reason="`make real` downloads the model"),
]
ROWS = 4


@pytest.fixture(scope="module")
def model():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(FOLDER, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def twice(model):
    """Random tokens read twice, on which heads are ablated."""
    return opened_model(model).probe_rows(2, ROWS, None, None, 1)


@pytest.fixture(scope="module")
def found(model, twice):
    return locate_induction_heads(model, batch=repeated_batch(twice, 2), rows=ROWS)


def plain_loss(model, tokens, heads=()):
    """Loss of the second reading, without these heads: their columns of o_proj's input are replaced
    by their mean.
    """
    z, hooks = {}, []

    def keep(layer):
        return lambda module, inputs: z.update({layer: inputs[0].mean(dim=(0, 1))})

    def replace(layer):
        def hook(module, inputs):
            changed = inputs[0].clone()
            for head in (head for at, head in heads if at == layer):
                changed[..., 64 * head : 64 * (head + 1)] = z[layer][64 * head : 64 * (head + 1)]
            return (changed,)

        return hook

    with torch.no_grad():
        for make in (keep, replace):
            projections = [
                (i, block.self_attn.o_proj) for i, block in enumerate(model.model.layers)
            ]
            hooks = [module.register_forward_pre_hook(make(i)) for i, module in projections]
            logits = model(tokens).logits
            for hook in hooks:
                hook.remove()
    half = tokens.shape[1] // 2
    return F.cross_entropy(
        logits[:, half - 1 : -1].flatten(0, 1), tokens[:, half:].flatten()
    ).item()


def test_every_heads_pattern_scores_are_those_of_a_loop(model, found):
    tokens = opened_model(model).probe_rows(4, ROWS, None, None, 0)
    with torch.no_grad():
        patterns = torch.stack(model(tokens, output_attentions=True).attentions).numpy()
    prefix, n = np.zeros((30, 9)), 0
    for row, ids in enumerate(tokens.tolist()):
        for query, token in enumerate(ids):
            after = [place + 1 for place in range(query) if ids[place] == token]
            if after and token not in ids[query + 1 :]:  # the last time it is read
                prefix += patterns[:, row, :, query, after].sum(axis=0)
                n += 1
    previous = np.diagonal(patterns, -1, axis1=-2, axis2=-1)[..., 1:].mean(
        axis=(1, -1)
    )  # from the third token on
    ours = found.sort_values(["layer", "head"])
    np.testing.assert_allclose(
        ours["prefix_matching"].to_numpy().reshape(30, 9), prefix / n, atol=1e-3
    )
    np.testing.assert_allclose(
        ours["previous_token"].to_numpy().reshape(30, 9), previous, atol=1e-3
    )


def test_the_loss_needs_the_heads_that_are_called_needed(model, found, twice):
    needed = found[found["needed"].eq(True)][["layer", "head"]].to_numpy().tolist()
    assert 5 <= len(needed) <= 15
    together = ablate_together(model, repeated_batch(twice, 2), needed)
    clean, without = plain_loss(model, twice), plain_loss(model, twice, needed)
    these = together[together["heads"] == "these"].iloc[0]
    assert these["loss"] == pytest.approx(without, abs=0.02)
    assert these["loss"] - these["loss_rise"] == pytest.approx(clean, abs=0.02)
    assert without - clean > 4
    assert together[together["heads"] != "these"]["loss_rise"].max() < 1


def test_the_guides_example_runs_as_printed(monkeypatch, capsys):
    page = FOLDER.parents[1] / "docs" / "smollm2.md"
    monkeypatch.chdir(FOLDER.parents[1])
    (example,) = re.findall(
        r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    exec(compile(example, page.name, "exec"), {})
    assert len(re.findall("suppresses|matches", capsys.readouterr().out)) >= 5
