"""The columns of a table: those that are wanted, whether they are there, and their values as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig, FeatureColumn
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import LABELS, LabelKind
from shardmill.infra.near_names import near_names

# The rows of all tables. The texts have no white space around them; empty ones are null.
ROWS_SCHEMA = pa.schema(
    [
        ("table", pa.int32()),  # number of the table
        ("number", pa.int64()),  # of the row in its table, from 1, without the header
        ("path", pa.string()),
        ("label", pa.string()),
        ("split", pa.string()),
        ("group", pa.string()),
        ("fault", pa.string()),  # why the row cannot be read, in words; null if it can
    ]
)

OF_OBJECTS = f"{PREFIX}objects/"  # before the settings of columns of boxes and what belongs to them

_COLUMNS_SHOWN = 20


def wanted_columns(
    settings: ColumnsConfig, typed: Mapping[str, FeatureColumn], kind: LabelKind
) -> dict[str, str]:
    """Return column of ROWS_SCHEMA, or ``feature:NAME`` -> column of the table, of those that are named.

    Args:
        settings: settings of the columns.
        typed: how the columns of features are read, by name.
        kind: kind of the labels.
    """
    named: dict[str, str | None] = {
        "path": settings.image_column,
        "label": settings.label_column if kind == "class" else None,
        "split": settings.split,
        "group": settings.group,
    }
    named |= {PREFIX + name: asked.column or name for name, asked in typed.items()}
    return {name: column for name, column in named.items() if column is not None}


def check_columns(
    table: str, found: Sequence[str], wanted: Mapping[str, str], remedy: str | None = None
) -> None:
    """Check that each wanted column is in a table exactly once.

    Args:
        table: name of the table, for errors.
        found: its columns.
        wanted: as ``wanted_columns`` returns them.
        remedy: what to do if one is missing; None to name the setting of the column.

    Raises:
        ConfigError: one is not; names the nearest column.
    """
    for name, column in wanted.items():
        count = list(found).count(column)
        if count == 1:
            continue
        if count:
            raise ConfigError(
                f"the table {table} has {count} columns {column!r}",
                f"rename one, or name another column: --set {_setting(name)}=NAME",
            )
        near = near_names(column, found)
        shown = ", ".join(repr(text) for text in found[:_COLUMNS_SHOWN])
        role = name.removeprefix(OF_OBJECTS).replace(":", " ")
        raise ConfigError(
            f"the table {table} has no column {column!r} for the {role}; it has {shown}",
            remedy
            or (
                f"did you mean --set {_setting(name)}={near[0]}?"
                if near
                else f"name it with --set {_setting(name)}=NAME"
            ),
        )


def _setting(name: str) -> str:
    """Return the setting that names a column."""
    known = {"path": "image", PREFIX + LABELS: "label", f"{PREFIX}mask/path": "mask"}
    if name.startswith(OF_OBJECTS):
        role = name.removeprefix(OF_OBJECTS).partition(":")[0]
        return f"source.{'columns' if role in ('label', 'mask') else 'objects.table'}.{role}"
    for kind in ("label", "target"):
        if name.startswith(f"{PREFIX}{kind}s:"):
            return f"source.columns.{kind}_columns"
    if name.startswith(PREFIX) and name not in known:
        return f"source.columns.features.{name.removeprefix(PREFIX)}"
    return f"source.columns.{known.get(name, name)}"


def rows_of(columns: Mapping[str, pa.Array | pa.ChunkedArray], count: int) -> pa.Table:
    """Return text columns as ROWS_SCHEMA without ``table``, numbered from 1; absent columns are null.

    Columns of features, which have any type, come behind them.
    """
    filled = {"number": pa.array(range(1, count + 1), pa.int64()), "fault": pa.nulls(count, pa.string())}
    for name in ("path", "label", "split", "group"):
        filled[name] = trimmed(columns[name]) if name in columns else pa.nulls(count, pa.string())
    filled |= {name: columns[name] for name in ("number", "fault") if name in columns}
    schema = pa.schema(field for field in ROWS_SCHEMA if field.name != "table")
    rows = pa.table({name: filled[name] for name in schema.names}, schema=schema)
    for name in columns:
        if name.startswith(PREFIX):
            rows = rows.append_column(name, columns[name])
    return rows


def trimmed(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return texts without white space around them, and null where nothing is left."""
    texts = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def as_text(table: str, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of texts, numbers or dates as text.

    Raises:
        ConfigError: it holds something else, such as lists or bytes that are no text.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(
            f"the column {name!r} of the table {table} holds {kind}, not text",
            "name a column of texts or numbers",
        ) from error
