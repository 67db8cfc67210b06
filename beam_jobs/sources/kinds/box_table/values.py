"""The values in the columns of box tables: numbers of boxes, classes and lists of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.sources.annotations.collecting import NO_AREA, NO_BOX, OUTSIDE, Box, box_of, is_text

REVERSED = "with edges in the wrong order"

_BETWEEN = re.compile(r"[\s,;]+")

_EDGES: dict[str, Callable[[float, float, float, float], Box]] = {
    "xyxy": lambda left, top, right, bottom: (top, left, bottom, right),
    "yxyx": lambda top, left, bottom, right: (top, left, bottom, right),
    "xywh": lambda left, top, width, height: (top, left, top + height, left + width),
    "cxcywh": lambda x, y, width, height: (y - height / 2, x - width / 2, y + height / 2, x + width / 2),
}


def values_of(column: pa.ChunkedArray, table_format: str) -> list[Any]:
    """Return the values of a column: texts of csv, and whatever JSON and Parquet hold.

    Args:
        column: as the format reads it: text for csv, JSON for jsonl, any type for parquet.
        table_format: csv, jsonl or parquet.
    """
    values: list[Any] = column.to_pylist()
    if table_format == "jsonl":
        return [None if text is None else json.loads(text) for text in values]
    return values


def numbers_of(value: Any) -> Any:
    """Return the list that a text holds: JSON, or numbers with commas or white space between them."""
    if not isinstance(value, str) or not value.strip():
        return None if isinstance(value, str) else value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _BETWEEN.split(value.strip(" \t()[]"))


def list_of(value: Any) -> Any:
    """Return the list that a text holds as JSON; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def text_of(value: Any) -> str | None:
    """Return a class as text without white space around it; None if it is empty, a list or an object."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.strip() or None if is_text(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    return str(int(value)) if value.is_integer() else str(value)


def number_of(value: Any) -> float | None:
    """Return a number as it is or from its text; None if it is none."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        return None
    try:
        return float(value) if isinstance(value, int | float | Decimal | str) else None
    except (ValueError, OverflowError):  # a whole number of JSON may be too large for a float
        return None


def is_true(value: Any) -> bool:
    """Tell whether a value is 1, or a text that says so."""
    return value is True or number_of(value) == 1 or str(value).strip().lower() in ("true", "yes")


def is_empty(value: Any) -> bool:
    """Tell whether a cell holds nothing: null, NaN (pandas writes it), white space, an empty list."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or value == [] or (isinstance(value, str) and value.strip().lower() in ("", "nan"))


def edges_of(values: Any, box_format: str) -> Box | None:
    """Return the edges of a box from its four numbers; None if it is something else.

    Args:
        values: list of numbers or of their texts.
        box_format: xyxy, yxyx, xywh or cxcywh.
    """
    if not isinstance(values, list | tuple):
        return None
    numbers = box_of([number_of(value) for value in values])
    return None if numbers is None else _EDGES[box_format](*numbers)


def fault_of(box: Box | None, size: tuple[float, float] | None) -> str | None:
    """Return why a box is no good; None if it is.

    Args:
        box: its edges.
        size: height and width of its image, in the unit of the box; None if they are not known.
    """
    if box is None:
        return NO_BOX
    top, left, bottom, right = box
    if bottom < top or right < left:
        return REVERSED
    if bottom == top or right == left:
        return NO_AREA
    height, width = size or (math.inf, math.inf)
    return OUTSIDE if bottom <= 0 or right <= 0 or top >= height or left >= width else None
