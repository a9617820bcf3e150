"""Run transformers' own tests of causal models on Llama and on the shifted Llama, and print what
only Llama passes.

    python -m tests.hf.transformers_suite            # the tests in the installed version's source archive, from PyPI
    python -m tests.hf.transformers_suite FOLDER     # also generation, from the `tests` folder of a git checkout

The archive has `tests/test_modeling_common.py`. It lacks the mixins for generation and export,
which that file imports.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import transformers

FOLDER = Path(__file__).parents[2] / "models" / f"transformers-{transformers.__version__}"
LACKING = {
    "exporters/test_export.py": "ExportTesterMixin",
    "generation/test_utils.py": "GenerationTesterMixin",
}
CASES = Path(__file__).with_name("transformers_cases.py")


def fetch(checkout: Path | None = None) -> None:
    """Write the tests and what they import to `FOLDER`."""
    tests = FOLDER / "transformers_tests"
    pip = [sys.executable, "-m", "pip", "--quiet"]
    if not tests.exists():
        with tempfile.TemporaryDirectory() as aside:
            release = f"transformers=={transformers.__version__}"
            given = f"download --no-binary transformers --no-deps --dest {aside} {release}".split()
            subprocess.run([*pip, *given], check=True)
            given = f"install --no-deps --target {FOLDER} parameterized".split()
            subprocess.run([*pip, *given], check=True)
            shutil.unpack_archive(next(Path(aside).glob("*.tar.gz")), aside)
            tests.mkdir()
            common = next(Path(aside).glob("*/tests/test_modeling_common.py"))
            shutil.copy(common, tests)
    for name, mixin in LACKING.items():
        path = tests / name
        path.parent.mkdir(exist_ok=True)
        if checkout is not None and (checkout / name).exists():
            path.write_text((checkout / name).read_text())
        elif not path.exists():
            path.write_text(f"class {mixin}: ...\n")


def run(select: str = "") -> dict[str, dict[str, str]]:
    """Return the outcome of each test for each class: passed, failed or skipped. `select` is
    pytest's `-k`.
    """
    outcomes: dict[str, dict[str, str]] = {"TestLlama": {}, "TestShifted": {}}
    with tempfile.TemporaryDirectory() as aside:
        found = Path(aside, "found.xml")
        given = f"--noconftest -c {os.devnull} -q -W ignore --tb=short --junitxml={found}".split()
        paths = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{CASES.parents[2]}:{FOLDER}"}
        command = [sys.executable, "-m", "pytest", CASES, *given, "-k", select]
        with (FOLDER / "log.txt").open("w") as log:
            subprocess.run(command, env=os.environ | paths, cwd=aside, stdout=log, check=False)
        for case in ElementTree.parse(found).iter("testcase"):
            kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
            ends = [kinds[part.tag] for part in case if part.tag in kinds] or ["passed"]
            outcomes[case.attrib["classname"].split(".")[-1]][case.attrib["name"]] = ends[0]
    return outcomes


def lost(outcomes: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the tests that Llama passes and the shifted Llama does not, and how each ends."""
    plain, shifted = outcomes["TestLlama"], outcomes["TestShifted"]
    ends = {
        name: shifted.get(name, "missing") for name, outcome in plain.items() if outcome == "passed"
    }
    return {name: outcome for name, outcome in ends.items() if outcome != "passed"}


def main() -> None:
    """Fetch, run, print."""
    fetch(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    outcomes = run()
    for name, ends in outcomes.items():
        print(name, json.dumps(Counter(ends.values())))
    for name, outcome in lost(outcomes).items():
        print(f"{outcome:<8}{name}")
    print(f"Every failure is explained in {FOLDER / 'log.txt'}.")


if __name__ == "__main__":
    main()
