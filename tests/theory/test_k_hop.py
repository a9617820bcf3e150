"""The hand-built k-hop models: right for every k up to their horizon, wrong beyond it, one layer
apart.
"""

import numpy as np
import pytest
import torch

from ihlab.theory.depth import by_doubling, horizon
from ihlab.theory.k_hop import k_hop
from tasks import IGNORE, ConfigError, MultiHopTask


def task_of(most):
    return MultiHopTask(vocab_size=most + 7, length=max(24, 3 * most + 6), max_hops=most)


def wrong(model, task, hops, rows=40):
    """The share of positions at which the likeliest token is not the target, and that of wrong
    letters.
    """
    batch = task.batch_of(hops, rows, np.random.default_rng(hops))
    with torch.no_grad():
        said = model(torch.from_numpy(batch.inputs.copy())).argmax(dim=-1).numpy()
    asked = batch.answers != IGNORE
    return (said != batch.targets).mean(), (said != batch.answers)[asked].mean()


@pytest.mark.parametrize("attention", ["vanilla", "kv_shift", "k_shift"])
@pytest.mark.parametrize("n_layers", [1, 2, 3, 4, 5])
def test_every_number_of_hops_up_to_the_horizon_is_followed_and_no_more(n_layers, attention):
    most = horizon(n_layers, attention)
    task = task_of(max(most + 1, 2))
    model = k_hop(n_layers, attention, task)
    assert model.cfg.n_layers == n_layers
    assert model.cfg.attention == attention
    every, rows = range(most + 1), 40 if most < 8 else 6
    for hops in every if most < 8 else {*every[:3], 5, most // 2, most // 2 + 1, *every[-2:]}:
        assert wrong(model, task, hops, rows) == (0, 0), hops
    assert wrong(model, task, most + 1, rows)[1] > 0.3


def test_the_shift_saves_one_layer():
    for n_layers in range(1, 7):
        assert horizon(n_layers + 1, "vanilla") == horizon(n_layers, "kv_shift") == 2**n_layers - 1
        doubled = 2 ** (n_layers - 1)
        assert by_doubling(n_layers + 1, "v_shift") == by_doubling(n_layers, "k_shift") == doubled
    assert by_doubling(1, "vanilla") == 0


def test_bad_wishes_are_refused():
    with pytest.raises(ConfigError, match="n_layers is 0"):
        k_hop(0, "kv_shift")
    for count in (horizon, by_doubling):
        with pytest.raises(ConfigError, match="did you mean 'kv_shift'"):
            count(2, "kv_shft")
        with pytest.raises(ConfigError, match="n_layers is 0"):
            count(0, "vanilla")
    with pytest.raises(ConfigError, match="attention"):
        k_hop(2, "v_shift")
