"""Functions that need our own model say so, and how to get one."""

from types import SimpleNamespace

import pytest
import torch

from ihlab.interp import shift_report
from ihlab.interp.checks import require_heads
from ihlab.interp.circuits import ov_circuit, qk_circuit
from ihlab.interp.induction_pair import find_induction_pair
from ihlab.interp.patching import path_effects, path_patch
from ihlab.interp.routes import route_effects
from tasks import ConfigError

TOKENS = torch.zeros(1, 5, dtype=torch.int64)
CALLS = {
    "path_patch": lambda model, batch: path_patch(model, TOKENS, TOKENS, (0, 0), (1, 0), "q"),
    "path_effects": lambda model, batch: path_effects(model, TOKENS, TOKENS, torch.mean),
    "qk_circuit": lambda model, batch: qk_circuit(model, 0, 0),
    "ov_circuit": lambda model, batch: ov_circuit(model, 0, 0),
    "find_induction_pair": lambda model, batch: find_induction_pair(model),
    "shift_report": lambda model, batch: shift_report(model),
    "route_effects": route_effects,
}


@pytest.mark.parametrize("name", CALLS)
def test_each_names_itself_and_the_conversion(name, batch):
    message = rf"^{name} needs an ihlab\.Transformer, but .* Linear: .*from_llama"
    with pytest.raises(ConfigError, match=message):
        CALLS[name](torch.nn.Linear(1, 1), batch)


@pytest.mark.parametrize("no_pair", [0, "1.0", (1, 0, 0), (0.5, 1)])
def test_heads_that_are_no_pairs_are_said(no_pair):
    """As in (1, 0) for [(1, 0)]; from an iterator, since the tests' own type checks refuse a list
    of them.
    """
    with pytest.raises(
        ConfigError, match=r"but must be pairs \(layer, head\), as in \[\(1, 0\), \(1, 3\)\]"
    ):
        require_heads(SimpleNamespace(n_layers=2, n_heads=4), iter([no_pair]))
