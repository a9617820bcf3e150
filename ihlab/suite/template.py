"""Fill the templates of the suite's pages."""

from math import isfinite
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,  # a name that the template misspells raises an error
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_PAGES.filters["two"] = lambda number: f"{number:z.2f}"
_PAGES.filters["three"] = lambda number: f"{number:.3f}"
_PAGES.tests["finite"] = isfinite


def filled(name: str, **values: Any) -> str:
    """Return the page that a template of this folder makes from values."""
    return _PAGES.get_template(f"{name}.md.jinja").render(values)
