"""A part of transformers' own tests: those of caches, of generation, and of loss by the class's
name.
"""

import pytest

from tests.hf.transformers_suite import FOLDER, lost, run

PART = (
    "torch_save_load or static_cache or 4d_attention or honors_shift_labels or continue_from or inherits or "
    "missing_keys or no_checkpoint or meta_device_context or no_missing_tied"
)


@pytest.mark.slow
@pytest.mark.skipif(
    not FOLDER.exists(), reason="`python -m tests.hf.transformers_suite` fetches them"
)
def test_shift_passes_what_llama_passes():
    outcomes = run(PART)
    assert outcomes["TestLlama"]["test_torch_save_load"] == "passed"
    assert lost(outcomes) == {}
