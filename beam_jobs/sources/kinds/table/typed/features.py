"""The features that ``source.columns.features`` names, as typed columns of the rows of all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import FeatureColumn
from shardmill.beam_jobs.sources.kinds.table.columns import trimmed
from shardmill.beam_jobs.sources.kinds.table.json_lines import read_json_column
from shardmill.beam_jobs.sources.kinds.table.typed.conversion import (
    DTYPES,
    Kind,
    convert,
    natural_kind,
)
from shardmill.beam_jobs.tables.columns import is_listed, lengths_of, lists_of, one_chunk
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import Feature


@dataclass(frozen=True)
class TypedColumn:
    """A column of one table with its type.

    Attributes:
        values: column of a type in ``conversion.ARROW_KINDS``, or of lists of it.
        kind: kind of its values; None if it has none and the settings name none.
        faults: row -> why its value cannot be used.
        length: length of each list, if it is fixed.
    """

    values: pa.Array
    kind: Kind | None
    faults: Mapping[int, str]
    length: int | None = None


def typed_features(
    table: str, rows: pa.Table, columns_asked: Mapping[str, FeatureColumn], table_format: str
) -> dict[str, TypedColumn]:
    """Give the columns of features of a table their types, by name.

    Args:
        table: name of the table, for errors.
        rows: with a column ``feature:NAME`` for each, as the format reads it.
        columns_asked: the settings of each feature.
        table_format: csv, jsonl or parquet.

    Raises:
        ConfigError: a column holds something that can be no feature.
    """
    return {
        name: typed_column(table, name, rows[PREFIX + name], asked, table_format)
        for name, asked in columns_asked.items()
    }


def typed_column(
    table: str, name: str, column: pa.ChunkedArray, asked: FeatureColumn, table_format: str
) -> TypedColumn:
    """Give a column of a table its type.

    Args:
        table: name of the table, for errors.
        name: name of the feature.
        column: as the format reads it: text for csv, JSON for jsonl, any type for parquet.
        asked: the settings of the feature.
        table_format: csv, jsonl or parquet.

    Raises:
        ConfigError: the column holds something that can be no feature.
    """
    faults: dict[int, str] = {}
    found: Kind | None
    if table_format == "jsonl":
        read = read_json_column(column)
        column, faults = read.values, read.faults
        if read.kind == "mixed" and asked.dtype == "auto":
            raise ConfigError(
                f"the feature {name!r} of the table {table} holds numbers and texts",
                f"say which: --set source.columns.features.{name}.dtype=text",
            )
        found = None if read.kind == "mixed" else read.kind
    else:
        column = trimmed(column) if table_format == "csv" else column
        found = natural_kind(column.type)
        if found is None:
            raise ConfigError(
                f"the feature {name!r} of the table {table} holds {column.type}",
                "a feature holds numbers, texts or bytes, or lists of them",
            )
    if asked.separator is not None and not is_listed(column.type):
        column = _split(column.cast(pa.string()), asked.separator)
    if asked.length is not None and not is_listed(column.type):
        raise ConfigError(
            f"the feature {name!r} of the table {table} has a length, but its column holds single values",
            f"in csv, say what stands between the values: --set source.columns.features.{name}.separator=' '",
        )
    length = asked.length
    if length is None and pa.types.is_fixed_size_list(column.type):
        length = column.type.list_size
    kind: Kind | None = found if asked.dtype == "auto" else asked.dtype
    try:
        converted = convert(column, kind or "text", length)
    except ConfigError as error:
        raise ConfigError(
            f"the feature {name!r} of the table {table}: {error.message}", error.remedy
        ) from error
    return TypedColumn(converted.values, kind, {**converted.faults, **faults}, length)


def joined_features(
    parts: Sequence[Mapping[str, TypedColumn]], columns_asked: Mapping[str, FeatureColumn]
) -> pa.Table:
    """Bring the features of all tables together; a feature has one type in all of them.

    Returns:
        A column ``feature:NAME`` for each, with its description.

    Raises:
        ConfigError: a feature is text in one table and numbers in another, or a list in one only.
    """
    columns, fields = [], []
    for name, wanted in columns_asked.items():
        typed = [part[name] for part in parts]
        feature = _joined_feature(name, wanted, typed)
        field = feature.arrow_field(PREFIX)
        # A column without a value may have been read as lists or not.
        values = [
            one.values.cast(field.type) if one.kind is not None else pa.nulls(len(one.values), field.type)
            for one in typed
        ]
        columns.append(pa.chunked_array(values, field.type))
        fields.append(field)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def with_faults(rows: pa.Table, typed: Mapping[str, TypedColumn]) -> pa.Table:
    """Say of the rows whose feature cannot be used why (column ``fault``), unless they are broken anyway."""
    messages: dict[int, str] = {}
    for name, column in typed.items():
        for row, fault in column.faults.items():
            messages.setdefault(row, f"its {name.rpartition(':')[2]} {fault}")
    if not messages:
        return rows
    words = [messages.get(row) for row in range(rows.num_rows)]
    at = rows.schema.get_field_index("fault")
    faults = pc.coalesce(rows["fault"], pa.array(words, pa.string()))
    return rows.set_column(at, rows.schema.field(at), faults)


def _joined_feature(name: str, asked: FeatureColumn, typed: Sequence[TypedColumn]) -> Feature:
    kinds = {one.kind for one in typed if one.kind is not None}
    lists = {is_listed(one.values.type) for one in typed if one.kind is not None}
    if kinds == {"int64", "float"}:
        kinds = {"float"}
    if len(kinds) > 1 or len(lists) > 1:
        raise ConfigError(
            f"the feature {name!r} has several types in the tables: "
            f"{', '.join(sorted({str(one.values.type) for one in typed}))}",
            f"say one: --set source.columns.features.{name}.dtype=text",
        )
    kind: Kind = next(iter(kinds), "text")
    lengths = {one.length for one in typed if one.kind is not None}
    length = lengths.pop() if len(lengths) == 1 else None
    has_lists = next(iter(lists), False)
    return Feature(
        name=name,
        dtype=DTYPES[kind],
        shape="scalar" if not has_lists else "variable" if length is None else "fixed",
        length=length,
        is_text=kind == "text",
        column=asked.column or name,
    )


def _split(texts: pa.ChunkedArray, separator: str) -> pa.ChunkedArray:
    """Split texts into lists of texts without white space around them; null stays null."""
    lists = one_chunk(pc.split_pattern(texts, separator))
    return pa.chunked_array(
        [lists_of(pc.utf8_trim_whitespace(lists.flatten()), lengths_of(lists), pc.is_null(lists))]
    )
