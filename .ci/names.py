"""List the names in `ihlab` and `tasks` that do not say what they hold, one a line: file, line, name."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

EMPTY = {"found", "at", "own", "given", "seen", "kept", "part", "told", "made", "p", "layers_of"}
"""Names to replace by what they hold: `estimates`, `positions`, `head_effects`, `rows`."""

ROOT = Path(__file__).parents[1]


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each variable, parameter and function that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def empty_names(root: Path = ROOT) -> list[str]:
    """Return `file:line: name` for each definition of an empty name."""
    paths = sorted(path for folder in ("ihlab", "tasks") for path in (root / folder).rglob("*.py"))
    return [
        f"{path.relative_to(root)}:{line}: {name}"
        for path in paths
        for line, name in sorted(names(ast.parse(path.read_text())))
        if name in EMPTY
    ]


if __name__ == "__main__":
    listed = empty_names()
    print(*listed, sep="\n")
    sys.exit(f"{len(listed)} names that do not say what they hold." if listed else 0)
