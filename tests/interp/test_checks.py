"""Functions that need our own model say so, and how to get one."""

import pytest
import torch

from ihlab.interp.ablation import ablate_heads
from ihlab.interp.induction_pair import find_induction_pair
from ihlab.interp.patching import path_patch
from ihlab.interp.routes import route_effects
from tasks import ConfigError

TOKENS = torch.zeros(1, 5, dtype=torch.int64)
CALLS = {
    "path_patch": lambda model, batch: path_patch(model, TOKENS, TOKENS, (0, 0), (1, 0), "q"),
    "find_induction_pair": lambda model, batch: find_induction_pair(model),
    "route_effects": route_effects,
}


@pytest.mark.parametrize("name", CALLS)
def test_each_names_itself_and_the_conversion(name, batch):
    message = rf"^{name} needs an ihlab\.Transformer, but .* Linear: .*from_llama"
    with pytest.raises(ConfigError, match=message):
        CALLS[name](torch.nn.Linear(1, 1), batch)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("heads", [[1, 0], [(0, 1.5)], [(0, 1, 2)], ["01"]])
def test_heads_that_are_no_pairs_are_refused(heads, make_model, batch):
    with pytest.raises(ConfigError, match=r"but must be pairs \(layer, head\)"):
        ablate_heads(make_model(), batch, heads)
