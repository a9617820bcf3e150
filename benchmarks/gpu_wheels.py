"""List the packages that a GPU machine without a network lacks, one `name==version` per line.

    python benchmarks/gpu_wheels.py there.txt > carried.txt
    pip download --no-deps --only-binary :all: --python-version 3.12 -r carried.txt -d wheels
    pip wheel --no-deps . -w wheels

`there.txt` is what `pip list --format freeze` prints on that machine. Versions are those installed here.
"""

from importlib.metadata import distribution
from pathlib import Path

import tyro
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(name: str, there: set[str], found: dict[str, str]) -> dict[str, str]:
    """Add to `found` the packages that `name` requires and `there` lacks, with their versions, and return it."""
    for line in distribution(name).requires or []:
        wanted = Requirement(line)
        package = canonicalize_name(wanted.name)
        if (
            package in there
            or package in found
            or not (wanted.marker is None or wanted.marker.evaluate({"extra": ""}))
        ):
            continue
        found[package] = distribution(package).version
        needed(package, there, found)
    return found


def main(there: tyro.conf.Positional[Path]) -> None:
    """Print what `ihlab` needs, except what is there.

    Args:
        there: A file of lines such as `torch==2.11.0`.
    """
    names = {
        canonicalize_name(line.partition("==")[0].strip())
        for line in there.read_text().splitlines()
    }
    for name, version in sorted(needed("ihlab", names, {}).items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    tyro.cli(main)
