"""The rows of box tables: values of the columns that the settings name, and features of their images."""

from __future__ import annotations

import csv
import io
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import FeatureColumn, SourceConfig
from shardmill.beam_jobs.reasons import CONTRADICTION
from shardmill.beam_jobs.sources.annotations.collecting import Annotations, size_of
from shardmill.beam_jobs.sources.kinds.box_table.values import number_of, numbers_of, values_of
from shardmill.beam_jobs.sources.kinds.table.columns import OF_OBJECTS, wanted_columns
from shardmill.beam_jobs.sources.kinds.table.tables import Table, log_rows, read_rows
from shardmill.beam_jobs.sources.kinds.table.typed.features import (
    TypedColumn,
    joined_features,
    typed_features,
    with_faults,
)
from shardmill.beam_jobs.tables.features import PREFIX, equal_rows
from shardmill.infra.errors import ConfigError
from shardmill.infra.readable import shortened

SETTING = "source.objects.table"
_CHUNK_ROWS = 16_384
_BOX, _LABEL, _CROWD, _SIZE, _MASK = (
    f"{OF_OBJECTS}{name}:" for name in ("box_columns", "label", "crowd_column", "size_columns", "mask")
)


@dataclass(frozen=True, slots=True)
class BoxRow:
    """A row of a box table.

    Attributes:
        number: number of the row, from 1, without the header.
        path: path of the image, as the table writes it.
        split, group: as the table writes them.
        fault: why the row cannot be read, in words, or None.
        label: the class, or a list of classes.
        box: four numbers or texts of such, or a list of such lists; None if there is none.
        is_crowd: whether the box is around a group, or a list of that.
        size: height and width of the image (pixels), if they are known.
        mask: path of the mask of the object; None if it has none.
    """

    number: int
    path: str | None
    split: str | None
    group: str | None
    fault: str | None
    label: Any
    box: Any
    is_crowd: Any
    size: tuple[int, int] | None
    mask: str | None = None


@dataclass(frozen=True)
class BoxTable:
    """A table of boxes; iterating over it gives its rows, some of them as Python values at a time.

    Attributes:
        rows: ROWS_SCHEMA without ``table``, and the columns that the settings name.
        format: csv, jsonl or parquet.
        settings: settings of the source.
        features: name -> further feature that each row gives its image.
    """

    rows: pa.Table
    format: str
    settings: SourceConfig
    features: Mapping[str, TypedColumn]

    def __iter__(self) -> Iterator[BoxRow]:
        """Yield the rows in order."""
        for start in range(0, self.rows.num_rows, _CHUNK_ROWS):
            yield from self._rows_of(self.rows.slice(start, _CHUNK_ROWS))

    def _rows_of(self, rows: pa.Table) -> Iterator[BoxRow]:
        settings, label = self.settings.objects.table, self.settings.columns.label_column

        def column(role: str, name: str | None) -> list[Any]:
            return [None] * rows.num_rows if name is None else values_of(rows[f"{role}{name}"], self.format)

        boxes = [column(_BOX, name) for name in settings.box_columns]
        sizes = [column(_SIZE, name) for name in settings.size_columns]
        crowds, labels = column(_CROWD, settings.crowd_column), column(_LABEL, label)
        masks = column(_MASK, self.settings.columns.mask)
        plain = (rows[name].to_pylist() for name in ("number", "path", "split", "group", "fault"))
        for at, (number, path, split, group, fault) in enumerate(zip(*plain, strict=True)):
            box = [values[at] for values in boxes] if len(boxes) > 1 else numbers_of(boxes[0][at])
            size = size_of(*(_whole(values[at]) for values in sizes)) if sizes else None
            mask = masks[at] if isinstance(masks[at], str) and masks[at].strip() else None
            yield BoxRow(number, path, split, group, fault, labels[at], box, crowds[at], size, mask)


def read_box_table(table: Table, settings: SourceConfig) -> BoxTable:
    """Read the columns of a table of boxes.

    Raises:
        ConfigError: the table cannot be read as the settings say, lacks a column, or has one that can be no
            feature.
    """
    columns, boxes = settings.columns, settings.objects.table
    roles = [(_BOX, name) for name in boxes.box_columns]
    roles += [(_LABEL, columns.label_column)]
    roles += [(_CROWD, boxes.crowd_column)] if boxes.crowd_column is not None else []
    roles += [(_SIZE, name) for name in boxes.size_columns]
    roles += [(_MASK, columns.mask)] if columns.mask is not None else []
    wanted = wanted_columns(columns, columns.further, "none")
    wanted |= {f"{role}{name}": name for role, name in roles}
    rows, kind, how_read = read_rows(table, settings.table, wanted)
    features = typed_features(table.name, rows, columns.further, kind)
    rows = with_faults(rows.drop_columns([PREFIX + name for name in columns.further]), features)
    log_rows(table, rows, how_read)
    return BoxTable(rows, kind, settings, features)


def named_row(table: str, number: int) -> tuple[str, str]:
    """Return the URI of a row, and the row for people."""
    return f"{table}#row={number}", f"row {number} of {table}"


def read_names_of_images(table: Table, settings: SourceConfig) -> list[tuple[int, str]]:
    """Return the number of each row of a list of images, and the name of the image in it.

    Raises:
        ConfigError: it cannot be read, or lacks the column.
    """
    if table.path.lower().endswith(".txt"):
        names: Sequence[str | None] = [line.strip() for line in _text(table).splitlines()]
    else:
        rows, _, how_read = read_rows(table, settings.table, {"path": settings.columns.image_column})
        log_rows(table, rows, how_read)
        names = rows["path"].to_pylist()
    return [(number, name) for number, name in enumerate(names, 1) if name]


def read_names_of_labels(table: Table) -> dict[str, str]:
    """Return label -> name of its class, from a CSV file without header.

    Raises:
        ConfigError: a line has not two values.
    """
    names = {}
    for row in csv.reader(io.StringIO(_text(table), newline="")):
        if len(row) != 2 or not row[1].strip():
            if not row:
                continue
            raise ConfigError(
                f"{table.name} has a line that is not label,name: {','.join(row)[:60]!r}",
                f"correct it, or leave {SETTING}.names_file out",
            )
        names[row[0].strip()] = row[1].strip()
    return names


def _text(table: Table) -> str:
    try:
        return table.folder.read_bytes(table.path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{table.name} is not UTF-8: {error}", "save it as UTF-8") from error


def _whole(value: Any) -> int | None:
    number = number_of(value)
    return int(number) if number is not None and number.is_integer() else None


_SHOWN = 41  # characters of a value, or of its beginning with "…"

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _TableFeatures:
    """The features of the rows of one table.

    Attributes:
        table: its name.
        columns: name of a feature -> its values [rows].
        images: int64 [rows], number of the image of each row.
    """

    table: str
    columns: Mapping[str, TypedColumn]
    images: Int64


@dataclass(frozen=True)
class FeaturesOfImages:
    """The features of the images of all tables.

    Attributes:
        asked: the settings of each feature, by name.
        tables: those that were added.
    """

    asked: Mapping[str, FeatureColumn]
    tables: list[_TableFeatures] = field(default_factory=list)

    def add(self, name: str, table: BoxTable, images: Sequence[int]) -> None:
        """Add the rows of a table.

        Args:
            name: name of the table.
            table: its rows.
            images: number of the image of each row.
        """
        if self.asked:
            self.tables.append(_TableFeatures(name, table.features, np.array(images, np.int64)))

    def settle(self, found: Annotations) -> None:
        """Give each image the features of its first row, and a fault if a later row gives it others.

        Images that no row names have none.

        Raises:
            ConfigError: a feature has several types in the tables.
        """
        if not self.asked:
            return
        values = joined_features([table.columns for table in self.tables], self.asked)
        images = np.concatenate([table.images for table in self.tables])
        first = np.full(len(found.images), -1, np.int64)
        named, at = np.unique(images, return_index=True)
        first[named] = at
        found.features = values.take(pa.array(first, mask=first < 0))
        for image, (row, feature) in _contradictions(values, images, first).items():
            if found.images[image].fault is None:
                column = values[PREFIX + feature]
                one, other = (_in_words(column[at].as_py()) for at in (first[image], row))
                words = f"its {feature} is {one}, and {other} in {self._who(row)}"
                found.images[image] = replace(found.images[image], fault=words, reason=CONTRADICTION)

    def _who(self, row: int) -> str:
        """Return a row for people; rows are counted through all tables from 0."""
        starts = np.cumsum([0, *(len(table.images) for table in self.tables)]).tolist()
        table = bisect(starts, row) - 1
        return named_row(self.tables[table].table, row - starts[table] + 1)[1]


def _contradictions(values: pa.Table, images: Int64, first: Int64) -> dict[int, tuple[int, str]]:
    """Return the first row that gives an image another value than its first row, and the feature, by image.

    Args:
        values: a column for each feature [rows].
        images: int64 [rows], number of the image of each row.
        first: int64 [images], first row of each image.
    """
    found: dict[int, tuple[int, str]] = {}
    later = np.flatnonzero(first[images] != np.arange(len(images)))
    if not len(later):
        return found
    earlier, later_rows = pa.array(first[images[later]]), pa.array(later)
    for name in values.column_names:
        column = values[name]
        differing = later[~equal_rows(column.take(later_rows), column.take(earlier))]
        contradicted, at = np.unique(images[differing], return_index=True)
        for image, row in zip(contradicted.tolist(), differing[at].tolist(), strict=True):
            if image not in found or row < found[image][0]:
                found[image] = row, name.removeprefix(PREFIX)
    return found


def _in_words(value: Any) -> str:
    """Return the text of a value for an error: cut if it is long, "unset" if there is none."""
    return shortened("unset" if value is None else str(value), _SHOWN)
