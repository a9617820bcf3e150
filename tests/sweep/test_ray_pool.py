"""Ray that cannot be used. What a killed worker does to a sweep is in `test_sweep.py`, and kills in
`tests.faults`.
"""

import sys

import pytest

from ihlab.sweep.ray_pool import in_ray
from tasks import ConfigError
from tests.faults.ways_in import CONFIG


@pytest.mark.slow
def test_a_ray_that_does_not_start_is_a_sentence(monkeypatch):
    def late(**options):
        raise TimeoutError("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", late)
    with pytest.raises(
        ConfigError,
        match=r"Ray cannot be started \(The current node timed out during startup\): try",
    ):
        in_ray({0: CONFIG}, None, 1, None)


@pytest.mark.slow
def test_without_ray_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"Ray is not installed: pip install 'ray>=2\.50'\."):
        in_ray({}, print, 1, print)
