"""Labels of other kinds than one class, and further features, of the rows of files.

The columns get their types as those of a table do (``shardmill.beam_jobs.sources.kinds.table.typed``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig, FeatureColumn
from shardmill.beam_jobs.sources.class_names import name_labels
from shardmill.beam_jobs.sources.kinds.table.typed.features import TypedColumn, typed_column, with_faults
from shardmill.beam_jobs.sources.kinds.table.typed.labels import (
    as_lists,
    label_columns,
    with_label_lists,
    with_labels,
    with_target_lists,
)
from shardmill.beam_jobs.sources.rows.row_files import FileRows
from shardmill.beam_jobs.tables.columns import is_listed, lengths_of, lists_of, mask_of, values_of
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import LABELS, TARGETS, LabelKind

_TYPED = "parquet"  # the columns have Arrow's types, as those of a table in Parquet


@dataclass(frozen=True)
class TypedRows:
    """The labels and features of the rows of a file.

    Attributes:
        table: string columns ``label`` and ``fault``, and for kinds multi and targets ``feature:labels`` or
            ``feature:targets``; [rows].
        unnamed: string [rows], which label is the number of no class, in words; null where all have names.
        features: the further features by name.
    """

    table: pa.Table
    unnamed: pa.Array
    features: Mapping[str, TypedColumn]


def type_rows(
    rows: FileRows, settings: ColumnsConfig, kind: LabelKind, names: Mapping[int, str], num_targets: int
) -> TypedRows:
    """Give the labels and features of a file's rows their types.

    Args:
        rows: rows of the file.
        settings: which columns are asked for.
        kind: kind of the labels.
        names: number -> name of the classes.
        num_targets: the numbers of a row, if one column holds them.

    Raises:
        ConfigError: a column holds something that can be no label or feature.
    """
    none = pa.nulls(len(rows.positions), pa.string())
    table = pa.table({"label": none, "fault": none if rows.faults is None else rows.faults})
    unnamed = none
    if kind == "class":
        labels, unnamed = name_labels(rows.labels, names)
        table = table.set_column(0, "label", labels)
    elif kind == "multi" and not settings.label_columns:
        table, unnamed = _with_several(table, rows, settings.label_separator, names)
    elif kind == "targets" and not settings.target_columns:
        table = _with_numbers(table, rows, num_targets)
    elif kind != "none":
        typed = _typed(rows, label_columns(settings, kind, ""))
        table = with_faults(table, typed)
        for name, column in typed.items():
            _check_single(rows, name, column)
            table = table.append_column(PREFIX + name, column.values)
        table = with_labels(table, settings, kind, "")
    features = _typed(rows, settings.further)
    return TypedRows(with_faults(table, features), unnamed, features)


def count_targets(rows: Sequence[FileRows]) -> int:
    """Return how many numbers the column of labels has in the first row that has some."""
    for one in rows:
        if one.label_values is not None and is_listed(one.label_values.type):
            lengths = pc.list_value_length(one.label_values).drop_null()
            lengths = lengths.filter(pc.greater(lengths, 0))
            if len(lengths):
                return int(lengths[0].as_py())
    return 1


def without_lists_of_one(rows: Sequence[FileRows]) -> list[FileRows]:
    """Turn a column of lists into one of single values if each list has at most one value, in all files.

    A ``tf.train.Example`` stores a single value as a list of one.

    Raises:
        ConfigError: no record has one of them.
    """
    for name in rows[0].columns if rows else ():
        if all(one.are_lists and not one.columns[name].drop_null() for one in rows):
            raise ConfigError(
                f"no record of the source has the feature {name!r}",
                "name another in source.columns.features, or leave it out",
            )
    single = {
        name
        for name in (rows[0].columns if rows else ())
        if all(one.are_lists and _longest(one.columns[name]) <= 1 for one in rows)
    }
    return [
        replace(
            one,
            columns={
                name: _first(values) if name in single else values for name, values in one.columns.items()
            },
        )
        for one in rows
    ]


def _longest(lists: pa.Array) -> int:
    return pc.max(pc.list_value_length(lists)).as_py() or 0


def _first(lists: pa.Array) -> pa.Array:
    """Return the one value of each list; null where it is empty."""
    lengths = lengths_of(lists)
    at = np.where(lengths > 0, np.cumsum(lengths) - 1, -1)
    return lists.flatten().take(pa.array(at, mask=at < 0))


def _with_several(
    table: pa.Table, rows: FileRows, separator: str | None, names: Mapping[int, str]
) -> tuple[pa.Table, pa.Array]:
    """Fill in the labels of kind multi that one column holds. Return also which are no class, in words."""
    typed = _typed_labels(rows, FeatureColumn(dtype="text", separator=separator))
    table = with_faults(table, {LABELS: typed})
    lists = as_lists(pa.chunked_array([typed.values]))
    lengths = lengths_of(lists)
    named, faults = name_labels(values_of(lists), names)
    lists = lists_of(pc.fill_null(named, ""), lengths, pc.is_null(lists))
    row_of_label = np.repeat(np.arange(len(lengths)), lengths)
    wrong = np.flatnonzero(mask_of(pc.is_valid(faults)))
    words = np.full(len(lengths), None, object)
    words[row_of_label[wrong[::-1]]] = faults.take(pa.array(wrong[::-1])).to_pylist()
    return with_label_lists(table, lists, rows.label_name), pa.array(words, pa.string())


def _with_numbers(table: pa.Table, rows: FileRows, num_targets: int) -> pa.Table:
    """Fill in the targets that one column holds."""
    assert rows.label_values is not None, "a kind gives them for labels = targets"
    has_lists = is_listed(rows.label_values.type)
    typed = _typed_labels(rows, FeatureColumn(dtype="float", length=num_targets if has_lists else None))
    values = np.full((len(rows.positions), num_targets), np.nan, np.float32)
    good = mask_of(pc.is_valid(typed.values))
    numbers = typed.values.drop_null()
    if has_lists:
        values[good] = numbers.flatten().to_numpy(zero_copy_only=False).reshape(-1, num_targets)
    else:
        values[good, 0] = numbers.to_numpy(zero_copy_only=False)
    return with_target_lists(with_faults(table, {TARGETS: typed}), values, rows.label_name)


def _typed_labels(rows: FileRows, asked: FeatureColumn) -> TypedColumn:
    assert rows.label_values is not None, "a kind gives them for labels = multi and targets"
    return typed_column(rows.file.uri, rows.label_name, pa.chunked_array([rows.label_values]), asked, _TYPED)


def _typed(rows: FileRows, asked: Mapping[str, FeatureColumn]) -> dict[str, TypedColumn]:
    found = {}
    for name, one in asked.items():
        values = rows.columns[one.column or name]
        found[name] = typed_column(rows.file.uri, name, pa.chunked_array([values]), one, _TYPED)
    return found


def _check_single(rows: FileRows, name: str, column: TypedColumn) -> None:
    if is_listed(column.values.type):
        kind, _, column_name = name.partition(":")
        raise ConfigError(
            f"the column {column_name!r} of {rows.file.uri} holds lists, and each of the {kind} is one value",
            f"name a list with --set source.columns.label={column_name} --set source.labels="
            + ("multi" if kind == LABELS else "targets"),
        )
