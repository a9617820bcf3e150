"""LoRA trains the taps if its config names them, and a shifted model says so if they are frozen."""

import re
from pathlib import Path

import pytest
import torch

from ihlab.hf import add_shift, from_hf, shift
from ihlab.hf.conformance.shifted import taps_of
from ihlab.interp import head_scores
from ihlab.model.conversion import from_llama
from tests.hf.conftest import maker
from tests.hf.test_model import IDS, refused

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "real_models.md"


@pytest.fixture
def said(monkeypatch):
    sentences = []
    monkeypatch.setattr(shift.logger, "warning_once", sentences.append)
    return sentences


@pytest.mark.parametrize(
    ("trained", "training", "expected"),
    [("others", True, True), ("others", False, False), ("all", True, False)],
)
def test_frozen_taps_among_trained_parameters_are_told(trained, training, expected, said):
    model = maker()().train(training)
    if trained != "all":
        for taps in taps_of(model):
            taps.requires_grad_(False)
    model(IDS)
    assert (said != []) is expected
    with torch.no_grad():
        said.clear()
        model(IDS)
    assert not said


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")  # peft reads it
def test_the_guides_config_trains_the_taps(said):
    pytest.importorskip("peft")
    (block,) = re.findall(
        r"```py\n(from peft .*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.S
    )
    made, trained = block.split("...  # train it\n")
    names = {"llama": maker()()}
    exec(made, names)
    lora = names["lora"].train()
    optimizer = torch.optim.SGD([x for x in lora.parameters() if x.requires_grad], lr=1.0)
    lora(IDS, labels=IDS).loss.backward()
    optimizer.step()
    assert not said
    logits = lora.eval()(IDS).logits
    sentence = "The model is a PeftModelForCausalLM, an adapter around a model: give model.merge_and_unload()."
    for call in (add_shift, from_hf, from_llama, lambda model: head_scores(model, tokens=IDS)):
        with refused(sentence):
            call(lora)
    exec(trained, names)
    merged = names["llama"]
    assert all((taps[:, 1] != 0).any() for taps in taps_of(merged))
    torch.testing.assert_close(from_hf(merged)(IDS), logits, atol=1e-4, rtol=1e-4)
