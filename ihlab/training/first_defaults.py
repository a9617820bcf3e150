"""The first default of each config field: its default when the field, or its class, was added.

A run's digest leaves out fields with their first default, and a stored config that lacks a field
gets it. So stored runs keep their digest and their meaning when a default changes.
"""

from dataclasses import MISSING
from typing import Any

from tasks.config import stored_names

CHANGED: dict[str, dict[str, Any]] = {}
"""The first default of each field whose default has changed, by the class's name and the field's
stored name.

No default has changed yet. Never remove an entry: stored runs depend on it.
"""


def is_frozen(cls: Any) -> bool:
    """Return True for a config class of this project, whose changed defaults are in `CHANGED`."""
    return cls.__module__.partition(".")[0] in ("ihlab", "tasks")


def first_defaults(cls: Any) -> dict[str, Any]:
    """Return the first defaults of a config class by stored names; for another package's class, its
    current ones.
    """
    defaults = {
        name: cls.__dataclass_fields__[field].default for field, name in stored_names(cls).items()
    }
    if is_frozen(cls):
        defaults |= CHANGED.get(cls.__name__, {})
    return {name: default for name, default in defaults.items() if default is not MISSING}
