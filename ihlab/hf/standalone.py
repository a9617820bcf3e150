"""Make the source file that a saved model carries, so that transformers opens it where ihlab is not installed.

`AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)` runs it. It needs only torch and transformers. It
consists of our own sources: every definition in `MODULES` that the classes use, except `HERE_ONLY`.
"""

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from symtable import SymbolTable, symtable
from typing import Any

NAME = "modeling_kv_shift"
MODULES = (
    "tasks.config",
    "ihlab.model.shift",
    "ihlab.hf.pickled",
    "ihlab.hf.links",
    "ihlab.hf.shift",
    "ihlab.hf.cache",
    "ihlab.hf.attention",
    "ihlab.hf.model",
)
HERE_ONLY = ("from_pretrained", "save_pretrained", "register_for_auto_class")
"""Methods that open and save folders with ihlab's checks. Without these, transformers' own methods do so."""
START = '''"""KV shifting attention (arXiv 2411.19574, equation 5) in models of transformers.

ihlab wrote this file from its own sources when it saved the model. It needs torch and transformers only. MIT licence.
"""

{imports}


class Float:
    """Tensors with their shapes, for the reader."""

    def __class_getitem__(cls, shape):
        return Tensor


Bool = Int = Shaped = Float
'''


@cache
def source() -> str:
    """Return the content of the file that a saved model carries."""
    imports, statements = {"Tensor": "from torch import Tensor"}, []
    for module in MODULES:
        text = inspect.getsource(import_module(module))
        for node in ast.parse(text).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports |= _imported(node)
            else:
                alone = _text(node, text.splitlines())
                names = symtable(alone, module, "exec")
                defined = {
                    symbol.get_name() for symbol in names.get_symbols() if symbol.is_assigned()
                }
                statements.append((defined, _used(names), alone))
    needed: set[str] = {"KVShiftConfig", "__getattr__", "Tensor"}
    while (
        more := set().union(*(used for defined, used, _ in statements if defined & needed)) - needed
    ):
        needed |= more
    import_lines = "\n".join(sorted({line for name, line in imports.items() if name in needed}))
    return "\n\n".join(
        [
            START.format(imports=import_lines),
            *(text for defined, _, text in statements if defined & needed),
        ]
    )


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return a line for each name that a statement imports; none for our own modules and jaxtyping."""
    origin = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
    if origin.startswith(("from ihlab", "from tasks", "from jaxtyping")):
        return {}
    return {
        alias.asname or alias.name: f"{origin}import {ast.unparse(alias)}" for alias in node.names
    }


def _text(node: Any, lines: list[str]) -> str:
    """Return the lines of a statement, with its comments."""
    for method in getattr(node, "body", ()):
        if getattr(method, "name", "") in HERE_ONLY:
            lines[_first(method) - 1 : method.end_lineno] = [""] * (
                method.end_lineno - _first(method) + 1
            )
    return (
        re.sub("\n{3,}", "\n\n", "\n".join(lines[_first(node) - 1 : node.end_lineno])).rstrip()
        + "\n"
    )


def _first(node: Any) -> int:
    return min(
        [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]
    )


def _used(names: SymbolTable) -> set[str]:
    """Return the names that a statement uses from its module."""
    module_names = {symbol.get_name() for symbol in names.get_symbols() if symbol.is_global()}
    return module_names.union(*map(_used, names.get_children()))
