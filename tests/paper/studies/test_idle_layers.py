"""Idle layers: what is removed, in a model whose idle layer is known, and verdicts on made-up tables."""

import pandas as pd
import pytest
import torch

from ihlab.paper.studies.idle_layers import IDLE_LAYERS, LEARNED, TEXT, measure
from tests.paper.studies.made_up import table, verdicts


class Finished:
    """A run of an untrained model with one layer that writes nothing, and the gates of the other shut."""

    def __init__(self, idle):
        config = IDLE_LAYERS.config(IDLE_LAYERS.cells[0], "smoke")
        self.config = config.replace(model=config.model.replace(init_std=0.3))
        self.metrics, self.idle = {"accuracy": pd.Series([0.5])}, idle

    def model(self):
        from ihlab.model.transformer import Transformer

        model = Transformer(self.config.model)
        with torch.no_grad():
            model.layers[self.idle].attn.o_proj.weight.zero_()
            model.layers[1 - self.idle].attn.out_gate.bias.fill_(-1.0)
        return model


@pytest.mark.parametrize("idle", [0, 1])
def test_the_idle_layer_is_found_whatever_its_gates_say(idle):
    found = measure(Finished(idle))
    assert found[f"rise_{idle}"] == found["least"] == pytest.approx(0, abs=1e-6)
    assert found[f"rise_{1 - idle}"] != pytest.approx(0, abs=1e-3)
    assert found[f"gate_{idle}"] == pytest.approx(0.5)
    assert found[f"gate_{1 - idle}"] == pytest.approx(0.2689, abs=1e-3)
    assert found["match"] == 0
    assert found["gate_0"] - found["gate_1"] == pytest.approx(0.2311 * (-1) ** idle, abs=1e-3)


def judge(least, gate, match, accuracy=1.0):
    def of(cell):
        sites = "with" if cell["sites"] in ("K", "M", "KOM") else "without"
        return {"accuracy": accuracy, "least": least[sites], "gate_0": gate[sites]}

    data = table(IDLE_LAYERS, of, noise=0.01)
    found = verdicts(IDLE_LAYERS, data.assign(match=float(match)))
    assert len(found) == len(IDLE_LAYERS.asks)
    return found


def test_verdicts_can_come_out_either_way():
    usual = judge({"with": 0.0, "without": 3.0}, {"with": 0.2, "without": 0.5}, match=True)
    contrary = judge({"with": 3.0, "without": 0.0}, {"with": 0.5, "without": 0.5}, match=False)
    told = {id for id in usual if not id.startswith(("idle.text", "idle.induction_4_layers"))}
    assert {usual[id] for id in told} == {"holds"}
    assert {contrary[id] for id in told} == {"fails"}
    unlearned = judge({"with": 0.0, "without": 3.0}, {"with": 0.2, "without": 0.5}, True, accuracy=LEARNED - 0.1)
    assert {v for id, v in unlearned.items() if id.startswith("idle.") and "text" not in id} == {"fails"}
    assert TEXT.startswith("text")
