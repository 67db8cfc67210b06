"""The functions of queries: one entry a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.views.values import LABEL, Columns, Value
from shardmill.infra.errors import UsageError


def apply_function(name: str, arguments: Sequence[Value], columns: Columns, text: str) -> Value:
    """Return the value of a function of the query.

    Raises:
        UsageError: the number or the kinds of its arguments are wrong.
    """
    wanted = 1 if name in ("column", "len", "lower") else 2
    if len(arguments) != wanted:
        given = f"it takes {wanted} argument{'s' * (wanted > 1)}, not {len(arguments)}"
        raise UsageError(f"{text}: {given}", "docs/query-and-views.md has examples")
    if name == "column":
        return columns.get(_constant_text(arguments[0], text))
    subject = arguments[0]
    if subject.column == LABEL and subject.kind == "number":
        subject = columns.label_name(subject.text)
    if subject.constant or subject.kind not in (("text", "list") if name == "len" else ("text",)):
        raise UsageError(f"{text}: {subject.text!r} is no column of texts", "give a column of texts first")
    if name == "len":
        length = pc.utf8_length if subject.kind == "text" else pc.list_value_length
        return Value("number", length(subject.data), text, pa.int32())
    if name == "lower":
        return Value("text", pc.utf8_lower(subject.data), text, pa.string())
    tell: Callable[..., object] = {
        "startswith": pc.starts_with,
        "endswith": pc.ends_with,
        "matches": pc.match_substring_regex,
    }[name]
    wanted_text = _constant_text(arguments[1], text)
    tell("", wanted_text)  # refuses a wrong regular expression, also where there is no record
    return Value("truth", tell(subject.data, wanted_text), text, pa.bool_())


def _constant_text(value: Value, text: str) -> str:
    if not value.constant or value.kind != "text":
        raise UsageError(f"{text}: {value.text} is no text", "give a text in quotes")
    found: str = value.data.as_py()
    return found
