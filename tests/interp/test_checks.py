"""Functions that need our own model say so, and how to get one."""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ihlab.interp import shift_report
from ihlab.interp.checks import require_heads
from ihlab.interp.circuits import ov_circuit, qk_circuit
from ihlab.interp.induction_pair import find_induction_pair
from ihlab.interp.patching import path_effects, path_patch
from ihlab.interp.routes import route_effects
from ihlab.model.conversion import from_llama
from tasks import ConfigError


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    return LlamaForCausalLM(
        LlamaConfig(**sizes, num_attention_heads=4, max_position_embeddings=24)
    ).eval()


def test_each_names_itself_and_the_conversion(llama, batch):
    tokens = torch.zeros(1, 5, dtype=torch.int64)
    calls = {
        "path_patch": lambda model: path_patch(model, tokens, tokens, (0, 0), (1, 0), "q"),
        "path_effects": lambda model: path_effects(model, tokens, tokens, torch.mean),
        "qk_circuit": lambda model: qk_circuit(model, 0, 0),
        "ov_circuit": lambda model: ov_circuit(model, 0, 0),
        "find_induction_pair": find_induction_pair,
        "shift_report": shift_report,
        "route_effects": lambda model: route_effects(model, batch),
    }
    converted = from_llama(llama)
    for name, call in calls.items():
        with pytest.raises(
            ConfigError,
            match=rf"^{name} needs an ihlab\.Transformer, but .* LlamaForCausalLM: .*from_llama",
        ):
            call(llama)
        if name not in ("shift_report", "route_effects"):  # a Llama has no shift
            call(converted)


@pytest.mark.parametrize("no_pair", [0, "1.0", (1, 0, 0), (0.5, 1)])
def test_heads_that_are_no_pairs_are_said(no_pair):
    """As in (1, 0) for [(1, 0)]; from an iterator, since the tests' own type checks refuse a list
    of them.
    """
    with pytest.raises(
        ConfigError, match=r"but must be pairs \(layer, head\), as in \[\(1, 0\), \(1, 3\)\]"
    ):
        require_heads(SimpleNamespace(n_layers=2, n_heads=4), iter([no_pair]))
