"""What the package says of itself in several files is the same in all of them."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def normal(name: str) -> str:
    """A distribution's name without version, extras and spelling: pandas-stubs of
    "Pandas_Stubs>=1".
    """
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()


OPTIONAL = {"gim": "gim-explain"}
"""The distributions of modules that need not be installed."""


def imported() -> set[str]:
    """Distributions, other than the standard library and our own, that the package imports."""
    modules = set()
    for path in (path for package in ("ihlab", "tasks") for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(node.module.partition(".")[0])
    of_module = packages_distributions()
    others = modules - set(sys.stdlib_module_names) - {"ihlab", "tasks"}
    return {normal(of_module.get(module, [OPTIONAL.get(module, module)])[0]) for module in others}


def test_the_package_declares_what_it_imports_and_no_more():
    declared = {normal(name) for name in (*PROJECT["dependencies"], *EXTRAS["gim"], *EXTRAS["ray"])}
    # accelerate: only for models that it has offloaded, so it is there
    assert imported() == declared | {"ipython", "pytest", "accelerate"}
    assert "ipython" in {
        normal(name) for name in EXTRAS["notebooks"]
    }  # imported inside a notebook only
    assert "pytest" in {normal(name) for name in EXTRAS["dev"]}  # only to make tests of conformance


REQUESTED = ("torch", "transformer-lens", "numpy", "matplotlib", "plotly", "jupyter", "pandas")


def test_every_requested_package_is_declared_and_used_where_the_table_says():
    rows = re.findall(
        r"^\| ([\w-]+) \| (dependency|extra) `(\w+(?:-\w+)*)`(.*?) \| `([\w/.]+)`",
        read("CONTRIBUTING.md"),
        re.M,
    )
    assert tuple(row[0] for row in rows) == REQUESTED
    for package, kind, name, rest, path in rows:
        if kind == "dependency":
            assert package == name
            assert name in {normal(each) for each in PROJECT["dependencies"]}
            assert re.search(rf"^ *(import|from) {name.replace('-', '_')}\b", read(path), re.M), (
                name,
                path,
            )
        else:
            assert package == "jupyter"
            assert "`jupyterlab`" in rest
            assert "jupyterlab" in {normal(each) for each in EXTRAS[name]}
            assert all(command in read(path) for command in ("/jupyter lab ", "/jupyter execute "))


def test_every_dependency_has_a_pinned_version():
    pinned = {
        normal(line) for line in read("constraints.txt").splitlines() if not line.startswith("#")
    }
    declared = {
        normal(name) for names in (PROJECT["dependencies"], *EXTRAS.values()) for name in names
    }
    assert declared - pinned == {"ihlab"}


def test_the_newest_release_of_the_changelog_and_of_the_citation_is_this_version():
    release = re.search(r"^## \[(\d.*?)\] - (.*)$", read("CHANGELOG.md"), flags=re.M).groups()
    assert release[0] == PROJECT["version"]
    assert (
        release
        == re.search(
            r"^version: (.*)\ndate-released: (.*)$", read("CITATION.cff"), flags=re.M
        ).groups()
    )


def test_ruff_is_the_same_before_a_commit_as_in_lint():
    [pinned] = re.findall(r"^ruff==.*$", read("constraints.txt"), flags=re.M)
    assert set(re.findall(r"ruff==[\d.]+", read(".pre-commit-config.yaml"))) == {pinned}


def test_ci_runs_on_every_python_that_is_promised():
    pythons = re.findall(
        r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", read(".github/workflows/ci.yml"))[0]
    )
    classified = [
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line
    ]
    low, high = pythons[0], f"3.{int(pythons[-1][2:]) + 1}"
    assert pythons == classified
    assert PROJECT["requires-python"] == f">={low},<{high}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_file_that_a_page_names_exists(page):
    names = re.findall(r"`((?:ihlab|tasks|tests|docs|figures)/[\w/.]+)`", read(page))
    assert names
    for name in set(names) - {"figures/checkpoints/"}:  # where the kept runs were
        assert (ROOT / name).exists(), name


def test_a_script_beside_a_clone_named_ihlab_imports_the_package(tmp_path):
    """`package-dir` makes an editable installation an entry of the path, which comes after the
    script's folder.
    """
    assert PYPROJECT["tool"]["setuptools"]["package-dir"] == {"": "."}
    clone = tmp_path / "ihlab"
    clone.symlink_to(ROOT)
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nsys.path.append({str(clone)!r})\nimport ihlab\nprint(ihlab.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(clone / "ihlab" / "__init__.py")


PROMISES = ("every sequence", "exact effect", "token shift")
"""What nothing else does: each description of the package names it."""


@pytest.mark.parametrize("page", ["pyproject.toml", "CITATION.cff", "mkdocs.yml"])
def test_each_description_names_proofs_exact_effects_and_the_shift(page):
    field = re.compile(
        r"^(?:site_)?(?:description = |description: |abstract: )(.*(?:\n  .*)*)", re.M
    )
    description = field.search(read(page))[1]
    words = " ".join(description.split())
    assert "prove" in words.lower()
    assert all(promise in words for promise in PROMISES)
