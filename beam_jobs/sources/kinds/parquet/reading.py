"""The columns of a Parquet file, its labels, and its images row by row.

A row group is read forward in batches of a few MiB, never whole and never twice while rows are asked for in
order. So memory is flat, however large the row groups are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardmill.beam_jobs.reasons import NO_IMAGE
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.parquet.arrow import MARK, ArrowStream
from shardmill.beam_jobs.sources.kinds.table.columns import as_text, trimmed
from shardmill.beam_jobs.sources.kinds.table.tables import PARQUET_DAMAGES, first_line
from shardmill.beam_jobs.sources.roles import Column, Offer, Roles, image_of
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken
from shardmill.beam_jobs.tables.columns import one_chunk, without_broken_texts
from shardmill.infra.format.known_features import LABELS, LabelKind
from shardmill.infra.readable import shortened

_BUFFER_BYTES = 1 << 20  # read at a time from the pages of a column
_BATCH_BYTES = 4 << 20  # encoded images read from Parquet at a time
_BATCH_ROWS = 512
_MAX_INVENTED_ROWS = 1_000_000  # a file has rarely more rows of images than bytes


def open_parquet(stream: BinaryIO) -> pq.ParquetFile:
    """Open a Parquet file, or a stream of Arrow, so that its columns are read piece by piece.

    Raises:
        RowFileBroken: it is none, or its end is missing.
    """
    try:
        mark = stream.read(len(MARK))
        stream.seek(0)
        if mark == MARK:
            return ArrowStream(stream)
        return pq.ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    except PARQUET_DAMAGES as error:
        raise RowFileBroken(f"it cannot be read as Parquet: {first_line(error)}") from error


def offered(uri: str, schema: pa.Schema, kind: LabelKind, empty: Collection[str] = ()) -> Offer:
    """Return the columns of a file, with what their types and Hugging Face's description say of them.

    Args:
        uri: URI of the file.
        schema: its columns.
        kind: kind of the labels.
        empty: names of columns that hold nothing.
    """
    features = described(schema)
    several = kind in ("multi", "targets")
    columns = [
        Column(
            field.name,
            shortened(str(field.type), 30),
            holds_images=holds_images(field.type),
            is_image=_is(features.get(field.name), "Image"),
            is_class=field.name not in empty
            and (
                _is(features.get(field.name), "ClassLabel")
                or (several and bool(class_names_of(features.get(field.name))))
            ),
            is_empty=field.name in empty,
        )
        for field in schema
    ]
    return Offer(uri, "column", columns)


def empty_columns(parquet: pq.ParquetFile, kind: LabelKind) -> set[str]:
    """Return the columns that may hold labels, by their name or description, and hold nothing but nulls.

    Raises:
        RowFileBroken: the file is damaged.
    """
    schema = parquet.schema_arrow
    offer = offered("", schema, kind)
    usual = {*offer.label_names, *offer.list_names}
    names = [column.name for column in offer.columns if column.is_class or column.name in usual]
    names = [
        name for name in names if schema.names.count(name) == 1 and not holds_images(schema.field(name).type)
    ]
    try:
        return {
            name
            for name in names
            if all(
                batch.column(0).null_count == batch.num_rows
                for batch in parquet.iter_batches(columns=[name], use_threads=False)
            )
        }
    except PARQUET_DAMAGES as error:
        raise RowFileBroken(f"its labels cannot be read: {first_line(error)}") from error


def described(schema: pa.Schema) -> Mapping[str, Any]:
    """Return the description of each column that Hugging Face's library left; empty if there is none.

    An export of Shardmill as Parquet has the names of the classes alone.
    """
    metadata = schema.metadata or {}
    try:
        if b"huggingface" in metadata:
            features = json.loads(metadata[b"huggingface"])["info"]["features"]
        else:
            label = {"_type": "ClassLabel", "names": json.loads(metadata[b"shardmill"])["classes"]}
            features = {"label": label, LABELS: {"_type": "Sequence", "feature": label}}
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def class_names_of(feature: Any) -> dict[int, str]:
    """Return number -> name of the classes of a described column of numbers, or of lists of them."""
    if isinstance(feature, list) and len(feature) == 1:
        return class_names_of(feature[0])
    if _is(feature, "Sequence") or _is(feature, "List") or _is(feature, "LargeList"):
        return class_names_of(feature.get("feature"))
    names = feature.get("names") if _is(feature, "ClassLabel") else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return {}
    return dict(enumerate(names))


def _is(feature: Any, kind: str) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == kind


def holds_images(kind: pa.DataType) -> bool:
    """Tell whether a column of this type may hold images: bytes, or structs with bytes."""
    if pa.types.is_struct(kind):
        at = kind.get_field_index("bytes")
        return at >= 0 and _is_binary(kind.field(at).type)
    return _is_binary(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def check_num_rows(parquet: pq.ParquetFile, size_bytes: int) -> None:
    """Check that a file can have the rows that its metadata count.

    Args:
        parquet: the file.
        size_bytes: its length.

    Raises:
        RowFileBroken: it cannot, or has none.
    """
    metadata = parquet.metadata
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    count = metadata.num_rows
    if min(counts, default=0) < 0 or sum(counts) != count or count > max(size_bytes, _MAX_INVENTED_ROWS):
        raise RowFileBroken(f"its metadata count {count:,} rows, which it cannot have")


def list_rows(
    file: RowFile, parquet: pq.ParquetFile, columns: Roles, names: Mapping[int, str], kind: LabelKind
) -> FileRows:
    """Read labels, splits and groups of a file; no image is read.

    Args:
        file: the file.
        parquet: the same, open.
        columns: their roles.
        names: number -> name of the classes, by the metadata of the file.
        kind: kind of the labels.

    Raises:
        ConfigError: a column holds no text or number. RowFileBroken: the file is damaged.
    """
    count = parquet.metadata.num_rows
    named = (columns.label, columns.split, columns.group, *columns.others)
    wanted = list(dict.fromkeys(name for name in named if name is not None))
    try:
        table, faults = without_broken_texts(parquet.read(columns=wanted))
    except PARQUET_DAMAGES as error:
        raise RowFileBroken(f"its labels cannot be read: {first_line(error)}") from error

    if wanted and table.num_rows != count:
        raise RowFileBroken(f"its metadata count {count:,} rows, and its labels {table.num_rows:,}")

    def texts(name: str | None) -> pa.Array | None:
        if name is None:
            return None
        column = trimmed(as_text(file.uri, name, table[name]))
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    label = columns.label
    labels = texts(label) if kind == "class" else None
    return FileRows(
        file,
        positions=np.arange(count, dtype=np.int64),
        sizes=np.zeros(count, np.int64),
        labels=pa.nulls(count, pa.string()) if labels is None else labels,
        splits=texts(columns.split),
        groups=texts(columns.group),
        faults=faults if faults.null_count < len(faults) else None,
        names=names,
        label_values=None if kind == "class" or label is None else one_chunk(table[label]),
        label_name=label or "",
        columns={name: one_chunk(table[name]) for name in columns.others},
    )


class ParquetImages:
    """The images of one open Parquet file.

    Args:
        file: the file.
        column: the column of the images; None to recognise it.
        mask: the column of the masks, which is not that of the images.

    Raises:
        RowFileBroken: it is no Parquet file. ConfigError: a column is not there.
    """

    def __init__(self, file: RowFile, column: str | None, mask: str | None = None) -> None:
        local = file.folder.local_path(file.uri)
        # Through a Python object, reading would take longer than decompressing. Not mapped into memory: if
        # the file is cut meanwhile, that would end this process.
        self._stream = pa.OSFile(local, "rb") if local is not None else file.open()
        self._parquet = open_parquet(cast(BinaryIO, self._stream))
        schema = self._parquet.schema_arrow
        self._image = image_of(offered(file.uri, schema, "none"), column, mask)
        self._is_struct = pa.types.is_struct(schema.field(self._image).type)
        self._path = f"{self._image}.bytes" if self._is_struct else self._image
        metadata = self._parquet.metadata
        lengths = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._group = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._start = 0  # first row of the current batch
        self._batch: pa.Array = pa.array([], pa.binary())
        self._broken: tuple[int, str] | None = None  # row group, and why it cannot be read further

    def read(self, file: FileRef, position: int) -> bytes:
        """Return the image of a row.

        Raises:
            SourceFault: the row has none. RowFileBroken: the file is damaged there.
        """
        if not 0 <= position < self._starts[-1]:
            raise RowFileBroken(f"it has {self._starts[-1]:,} rows")
        group = int(np.searchsorted(self._starts, position, side="right")) - 1
        if group != self._group or position < self._start:
            self._begin(group)
        if self._broken is not None:
            raise RowFileBroken(self._broken[1])
        while position >= self._start + len(self._batch):
            self._advance()
        value = self._batch[position - self._start]
        if not value.is_valid:
            raise SourceFault(NO_IMAGE, f"its column {self._image!r} is empty")
        return bytes(value.as_buffer())

    def close(self) -> None:
        """Close the file."""
        self._batches = iter(())
        self._parquet.close()
        self._stream.close()

    def _begin(self, group: int) -> None:
        """Go to the first row of a row group."""
        self._group, self._start, self._batch = group, int(self._starts[group]), pa.array([], pa.binary())
        if self._broken is not None and self._broken[0] == group:
            return
        self._broken = None
        metadata = self._parquet.metadata.row_group(group)
        columns = map(metadata.column, range(metadata.num_columns))
        images = next((column for column in columns if column.path_in_schema == self._path), None)
        if images is None:
            self._broken = (group, f"row group {group} has no column {self._path!r}")
            return
        mean_bytes = images.total_uncompressed_size / max(1, metadata.num_rows)
        rows = int(min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(1, mean_bytes))))
        self._batches = self._parquet.iter_batches(
            batch_size=rows, row_groups=[group], columns=[self._path], use_threads=False
        )

    def _advance(self) -> None:
        """Go to the next batch of the row group."""
        try:
            batch = next(self._batches, None)
        except PARQUET_DAMAGES as error:
            self._broken = (self._group, f"row group {self._group}: {first_line(error)}")
            raise RowFileBroken(self._broken[1]) from error
        if batch is None:
            self._broken = (self._group, f"row group {self._group} ends early")
            raise RowFileBroken(self._broken[1])
        self._start += len(self._batch)
        column = batch.column(0)
        self._batch = pc.struct_field(column, "bytes") if self._is_struct else column
