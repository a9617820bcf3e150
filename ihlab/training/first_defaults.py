"""The default of each config field.

A run's digest leaves out fields at their default, and a stored config that lacks a field gets it.
So a default never changes: stored runs would change their digest and their meaning.
"""

from dataclasses import MISSING
from typing import Any

from tasks.config import stored_names


def first_defaults(cls: Any) -> dict[str, Any]:
    """Return the defaults of a config class by stored names."""
    defaults = {
        name: cls.__dataclass_fields__[field].default for field, name in stored_names(cls).items()
    }
    return {name: default for name, default in defaults.items() if default is not MISSING}
