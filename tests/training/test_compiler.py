"""What a machine compiles with, prepared before anything but torch is installed."""

import subprocess
import sys
import textwrap

import pytest

from ihlab.training.compiler import CALLED_BY_CPP, compiler_options
from tests.forked import ROOT

ALONE = """
    import sys
    for name in ("numpy", "numba", "jaxtyping", "pandas", "transformer_lens", "transformers"):
        sys.modules[name] = None
    import torch
    from ihlab.training.compiler import prepare
    torch._inductor.config.force_disable_caches = True
    prepare()
    print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


@pytest.mark.slow
def test_preparing_compiles_and_needs_nothing_but_torch():
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(ALONE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_cpp_calls_the_kernels_on_a_cpu_where_that_was_measured_and_torch_can(monkeypatch):
    known = [*CALLED_BY_CPP, "max_autotune"]
    monkeypatch.setattr("torch._inductor.list_options", lambda: known)
    assert compiler_options("cpu") == (CALLED_BY_CPP if sys.platform == "linux" else None)
    assert compiler_options("cuda") is None
    known.remove("cpp_wrapper_build_separate")
    assert compiler_options("cpu") is None
