"""Fill the templates of the suite's pages."""

from math import isfinite, isnan
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


def _span(values: list[float | None], digits: int) -> str:
    """Return the smallest and largest number as text, and how many are missing; "" if there is no number."""
    there = [
        f"{value:z.{digits}f}" for value in sorted(value for value in values if value is not None and not isnan(value))
    ]
    missing = f" ({len(values) - len(there)} without)" if there and len(there) < len(values) else ""
    return "–".join(dict.fromkeys(there[:1] + there[-1:])) + missing


_PAGES.filters["span"] = _span


def filled(name: str, **values: Any) -> str:
    """Return the page that a template of this folder makes from values."""
    return _PAGES.get_template(f"{name}.md.jinja").render(values)
