"""Write JSON as the standard has it (RFC 8259), which knows no numbers that are infinite or not a number."""

from __future__ import annotations

import json
import math
from typing import Any


def dump_json(value: Any, **layout: Any) -> str:
    """Return the JSON text of a value, with null in place of each float that is not finite.

    Args:
        value: a JSON-able value.
        layout: arguments of ``json.dumps``, such as ``indent``.
    """
    try:
        return json.dumps(value, allow_nan=False, **layout)
    except ValueError:
        return json.dumps(finite(value), allow_nan=False, **layout)


def finite(value: Any) -> Any:
    """Return a copy of a value with None in place of each float that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value
