"""The limit of memory, in readable units, and the largest ids."""

import numpy as np
import pytest

from tasks import ConfigError, InductionTask
from tasks.memory import in_units, machine_memory, require_memory


def test_the_highest_ids_are_drawn():
    """Ids of induction are drawn in 32 bits."""
    high = (
        InductionTask(vocab_size=2**31, min_token=2**31 - 20, length=12)
        .batch(4, np.random.default_rng(0))
        .inputs
    )
    assert (high >= 2**31 - 20).all()
    assert (high < 2**31).all()


def test_the_limit_is_the_machines():
    require_memory("All of it", machine_memory())
    with pytest.raises(ConfigError, match=r"^More takes at least .*, but only "):
        require_memory("More", machine_memory() + 1)


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [
        (0, "0 bytes"),
        (3 * 2**39, "1.5 TiB"),
        (2**70, "1.02e+03 EiB"),
    ],
)
def test_bytes_in_units(n_bytes, shown):
    assert in_units(n_bytes) == shown
