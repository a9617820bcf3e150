"""What importing the suite loads: the model and the exact effects, nothing of exports, pages and
statistics.
"""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_exports_pages_and_statistics_are_loaded_when_they_are_used():
    code = """
import sys
from ihlab import suite

unused = {"matplotlib", "scipy.stats", "numba", "ihlab.hf", "ihlab.plots", "ihlab.study.study"}
unused |= {"ihlab.suite.hub_folder"}
assert not unused & set(sys.modules), unused & set(sys.modules)
assert {"card", "export"} <= set(dir(suite))
assert suite.export.__module__ == "ihlab.suite.hub_folder"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
