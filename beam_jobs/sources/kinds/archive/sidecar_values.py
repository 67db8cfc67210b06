"""Labels of other kinds than one class, and further features, from the sidecars of WebDataset samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.config import ArchiveConfig, PrepareConfig, RowsConfig
from beam_jobs.schemas import BROKEN_ROW, DROPPED_LABEL, FILTER_REASONS, NO_LABEL, Status
from beam_jobs.sources.classes.numbers import ClassNumbers
from beam_jobs.sources.files.folder import SourceFolder
from beam_jobs.sources.kinds.archive.listing import ListedArchive, sample_key
from beam_jobs.sources.kinds.table.rules import MISSING_LABEL, dropped, merged
from beam_jobs.sources.kinds.table.typed.features import joined_features
from beam_jobs.sources.kinds.table.typed.json_values import JsonColumn, read_json_column
from beam_jobs.sources.rows.row_files import FileRows, RowFile
from beam_jobs.sources.rows.typed import TypedRows, count_targets, type_rows
from beam_jobs.tables.features import PREFIX
from beam_jobs.tables.lists import one_chunk, with_column
from infra.errors import ConfigError
from infra.format.labels import LabelKind

_NO_TEXT = pa.scalar(None, pa.string())


def asked_values(settings: ArchiveConfig, kind: LabelKind) -> list[str]:
    """Return the keys of the ``.json`` sidecars that hold labels of other kinds, and features."""
    of_labels = [settings.label_key] if kind in ("multi", "targets") else []
    return list(dict.fromkeys([*of_labels, *(one.column or name for name, one in settings.features.items())]))


def with_values(
    table: pa.Table,
    archives: Sequence[ListedArchive],
    config: PrepareConfig,
    folder: SourceFolder,
    names: ClassNumbers,
) -> pa.Table:
    """Fill in what the sidecars say besides one class.

    Args:
        table: MEMBER_LISTING_SCHEMA.
        archives: with the values of their sidecars.
        config: of the run.
        folder: the source.
        names: number -> name of the classes.

    Returns:
        MEMBER_LISTING_SCHEMA and columns of features.

    Raises:
        ConfigError: the values of a key have no common type.
    """
    settings, kind = config.source.archive, config.source.label_kind
    lists_of = settings.label_key if kind in ("multi", "targets") else None
    columns = _columns(table, archives, asked_values(settings, kind), lists_of)
    asked = {
        name: one.model_copy(
            update={
                "column": one.column or name,
                "dtype": _dtype(name, one.dtype, columns[one.column or name]),
            }
        )
        for name, one in settings.features.items()
    }
    label = columns.get(settings.label_key) if kind in ("multi", "targets") else None
    rows = FileRows(
        RowFile(folder, "the sidecars", 0),
        positions=np.zeros(table.num_rows, np.int64),
        sizes=np.zeros(table.num_rows, np.int64),
        labels=one_chunk(table["label"]),
        faults=_faults(columns, table.num_rows),
        label_values=None if label is None else one_chunk(label.values),
        label_name=settings.label_key,
        columns={name: one_chunk(column.values) for name, column in columns.items()},
    )
    read = RowsConfig(features=asked)
    typed = type_rows(rows, read, kind, names if kind == "multi" else {}, count_targets([rows]))
    features = joined_features([typed.features], asked)
    table = _settled(table, typed, settings, kind)
    for field in features.schema:
        table = table.append_column(field, features[field.name])
    return table


def _columns(
    table: pa.Table, archives: Sequence[ListedArchive], keys: Collection[str], lists_of: str | None
) -> dict[str, JsonColumn]:
    """Return the values of each key for the images that are to be read, null for all other rows.

    Of the key ``lists_of`` a single value is a list of one.
    """
    by_uri = {archive.uri: archive for archive in archives}
    texts: dict[str, list[str | None]] = {key: [] for key in keys}
    rows = zip(*(table[name].to_pylist() for name in ("uri", "container", "status")), strict=True)
    for uri, container, status in rows:
        values: Mapping[str, str] = {}
        if status == Status.TO_READ and container in by_uri:
            archive = by_uri[container]
            values = archive.values.get(sample_key(archive.name_of(uri)), {})
        for key in keys:
            text = values.get(key)
            if key == lists_of and text is not None and text[0] not in "[{n":
                text = f"[{text}]"
            texts[key].append(text)
    return {
        key: read_json_column(pa.chunked_array([pa.array(text, pa.string())])) for key, text in texts.items()
    }


def _dtype(name: str, asked: str, column: JsonColumn) -> str:
    if asked != "auto":
        return asked
    if column.kind == "mixed":
        raise ConfigError(
            f"the feature {name!r} of the sidecars holds numbers and texts",
            f"say which: --set source.archive.features.{name}.dtype=text",
        )
    return column.kind or "text"


def _faults(columns: Mapping[str, JsonColumn], count: int) -> pa.Array:
    said: dict[int, str] = {}
    for key, column in columns.items():
        for row, fault in column.faults.items():
            said.setdefault(row, f"its {key} {fault}")
    return pa.array([said.get(row) for row in range(count)], pa.string())


def _settled(table: pa.Table, typed: TypedRows, settings: ArchiveConfig, kind: LabelKind) -> pa.Table:
    """Settle the images whose values cannot be used, and fill in the labels."""
    is_dropped = one_chunk(dropped(typed.table, settings.drop_labels, kind))
    labelled = merged(typed.table, settings.merge_labels, kind)
    labels, faults = one_chunk(labelled["label"]), one_chunk(typed.table["fault"])
    is_to_read = pc.equal(table["status"], int(Status.TO_READ))
    rules = [(pc.is_valid(faults), BROKEN_ROW, faults)]
    if kind in ("multi", "targets"):
        missing = f"no sidecar of the same name gives it a {MISSING_LABEL[kind]}"
        rules += [
            (pc.is_valid(typed.unnamed), NO_LABEL, typed.unnamed),
            (pc.is_null(labels), NO_LABEL, pa.scalar(missing)),
            (is_dropped, DROPPED_LABEL, pa.scalar("source.archive.drop_labels names one of its labels")),
        ]
        label = pc.if_else(is_to_read, labels, _NO_TEXT)
        table = with_column(table, table.schema.field("label"), label)
    for mask, reason, message in rules:
        chosen = pc.and_(pc.equal(table["status"], int(Status.TO_READ)), mask)
        lost = int(Status.FILTERED if reason in FILTER_REASONS else Status.QUARANTINED)
        table = with_column(
            table, table.schema.field("message"), pc.if_else(chosen, message, table["message"])
        )
        table = with_column(
            table, table.schema.field("reason"), pc.if_else(chosen, pa.scalar(reason), table["reason"])
        )
        table = with_column(table, table.schema.field("status"), pc.if_else(chosen, lost, table["status"]))
    for name in labelled.schema.names:
        if name.startswith(PREFIX):
            table = table.append_column(labelled.schema.field(name), labelled[name])
    return table
