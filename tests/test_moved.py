"""Old module paths of public names."""

import subprocess
import sys
from functools import partial
from importlib import import_module

import pytest

from ihlab.moved import MOVED

PATHS = {**MOVED, "ihlab.claims.study": "ihlab.study.study", "ihlab.studies.registry": "ihlab.paper.studies.registry"}


@pytest.mark.parametrize(("old", "new"), PATHS.items())
def test_an_old_path_is_the_new_module_and_warns_once(monkeypatch, old, new):
    for path in (path for path in list(sys.modules) if path.startswith(tuple(MOVED))):
        monkeypatch.delitem(sys.modules, path)
    package = old.rpartition(".")[0]
    if package in MOVED:
        with pytest.warns(DeprecationWarning, match=package):
            import_module(package)
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now") as warned:
        assert import_module(old) is import_module(new)
    assert warned[0].filename.endswith("importlib/__init__.py")  # the caller of the import, not ihlab
    assert import_module(old).__name__ == new  # without another warning


def test_names_of_old_paths_are_those_of_the_new_ones():
    script = "from ihlab.claims.ask import Ask as old; from ihlab.study.ask import Ask; assert old is Ask"
    run = partial(subprocess.run, capture_output=True, text=True)
    package, module = run([sys.executable, "-c", script], check=True).stderr.splitlines()
    assert package.startswith("<string>:1: DeprecationWarning: ihlab.claims is ihlab.study now")
    assert module.startswith("<string>:1: DeprecationWarning: ihlab.claims.ask is ihlab.study.ask now")
    refused = run([sys.executable, "-W", "error", "-c", script], check=False)
    assert refused.stderr.splitlines()[-1] == package.removeprefix("<string>:1: ")


def test_an_old_path_of_nothing_is_missing():
    with pytest.warns(match="now"), pytest.raises(ModuleNotFoundError, match=r"ihlab\.paper\.igsm\.nothing"):
        import_module("ihlab.igsm.nothing")
