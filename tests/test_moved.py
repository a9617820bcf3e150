"""Old module paths of public names."""

import sys
from importlib import import_module

import pytest

from ihlab.moved import MOVED

PATHS = {**MOVED, "ihlab.claims.study": "ihlab.study.study"}


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


def test_an_old_path_of_nothing_is_missing():
    with pytest.warns(match="now"), pytest.raises(ModuleNotFoundError, match=r"ihlab\.study\.nothing"):
        import_module("ihlab.claims.nothing")
