"""The rows of files of ``tf.train.Example`` messages, collected record by record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.sources.kinds.table.formats.columns import trimmed
from shardmill.beam_jobs.sources.rows.feature_map import FeatureMap
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.examples import Values, parse_features

Record = tuple[int, bytes, str | None]  # position, payload, why it cannot be read

_DAMAGED_RECORDS = 16  # at the beginning of a source; if there are more, it holds other records
_TYPES = {bytes: pa.binary(), float: pa.float32(), int: pa.int64()}


@dataclass
class RowsOfExamples:
    """Collects the records of a file, one after the other.

    Args:
        features: names of the features.
    """

    features: FeatureMap
    positions: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    faults: list[str | None] = field(default_factory=list)
    values: dict[str, list[list[Any] | None]] = field(default_factory=dict)
    types: dict[str, type] = field(default_factory=dict)

    def add(self, position: int, payload: bytes, fault: str | None = None) -> None:
        """Add a record.

        Args:
            position: for the reader of the kind.
            payload: the serialised ``tf.train.Example``.
            fault: why it cannot be read, or None.
        """
        texts: list[str | None] = [None, None, None]
        lists: dict[str, list[Any] | None] = {}
        image: Values = ()
        if fault is None:
            try:
                found = parse_features(payload)
                image = found.get(self.features.image, ())
                names = (self._class, self.features.split, self.features.group)
                texts = [text_of(found, name) if name is not None else None for name in names]
                lists = {name: self._list(found, name) for name in self._listed}
            except (CorruptDataError, ValueError) as error:
                fault = str(error)
        self.positions.append(position)
        self.sizes.append(sum(len(value) for value in image if isinstance(value, bytes)))
        for column, text in zip((self.labels, self.splits, self.groups), texts, strict=True):
            column.append(text)
        for name in self._listed:
            self.values.setdefault(name, []).append(lists.get(name))
        self.faults.append(fault)

    def rows(self, file: RowFile, damage: str | None) -> FileRows:
        """Return the rows that were added.

        Args:
            file: that holds them.
            damage: why the records behind them cannot be read; None if there are no more.
        """
        columns = {
            name: pa.array(values, pa.list_(_TYPES[self.types.get(name, bytes)]))
            for name, values in self.values.items()
        }
        label = self.features.label
        return FileRows(
            file,
            positions=np.array(self.positions, np.int64),
            sizes=np.array(self.sizes, np.int64),
            labels=_column(self.labels),
            splits=_column(self.splits),
            groups=_column(self.groups),
            faults=pa.array(self.faults, pa.string()),
            damage=damage,
            label_values=columns[label] if label is not None and self._class is None else None,
            label_name=label or "",
            columns={name: columns[name] for name in self.features.others},
            are_lists=True,
        )

    @property
    def _class(self) -> str | None:
        """The feature with the one class of a record."""
        return self.features.label if self.features.kind == "class" else None

    @property
    def _listed(self) -> tuple[str, ...]:
        """The features whose values are copied unchanged."""
        label = self.features.label if self._class is None else None
        return tuple(dict.fromkeys([*([label] if label is not None else []), *self.features.others]))

    def _list(self, features: Mapping[str, Values], name: str) -> list[Any] | None:
        """Return the values of a feature; None if the record lacks it.

        Raises:
            ValueError: they have another type than in other records, or are several where one is meant.
        """
        values = list(features.get(name, ()))
        if not values:
            return None
        if name in self.features.single and len(values) > 1:
            raise ValueError(f"its feature {name!r} has {len(values)} values")
        kind = self.types.setdefault(name, type(values[0]))
        if type(values[0]) is not kind:
            found = type(values[0]).__name__
            raise ValueError(f"its feature {name!r} holds {found}, where other records have {kind.__name__}")
        return values


def collect_rows(
    records: Iterable[Record], known: list[FeatureMap], find: Callable[[bytes], FeatureMap]
) -> RowsOfExamples | None:
    """Collect the records of a file, one after the other; None if it has none.

    The first sound record tells the features. Damaged ones in front of it lose only themselves.

    Args:
        records: of the file.
        known: the features of the source; empty before they are found, then one.
        find: finds them by a record.

    Raises:
        RowFileBroken: the first records of the source are damaged.
        ConfigError: they are no examples, or the features cannot be told.
    """
    rows: RowsOfExamples | None = None
    waiting: list[Record] = []
    for record in records:
        if not known and not _is_sound(record) and len(waiting) < _DAMAGED_RECORDS:
            waiting.append(record)
            continue
        rows = rows or RowsOfExamples(_found(known, record, find))
        for each in (*waiting, record):
            rows.add(*each)
        waiting = []
    if waiting:
        _found(known, waiting[0], find)
    return rows


def _is_sound(record: Record) -> bool:
    _, payload, fault = record
    try:
        return fault is None and bool(parse_features(payload))
    except CorruptDataError:
        return False


def _found(known: list[FeatureMap], record: Record, find: Callable[[bytes], FeatureMap]) -> FeatureMap:
    _, payload, fault = record
    if not known:
        if fault is not None:
            raise RowFileBroken(f"its first record is damaged: {fault}")
        known.append(find(payload))
    return known[0]


def _column(texts: Sequence[str | None]) -> pa.Array:
    return trimmed(pa.array(texts, pa.string()))


def text_of(features: Mapping[str, Values], name: str) -> str | None:
    """Return the value of a feature as text; None if the feature is missing or empty.

    Raises:
        ValueError: it has several values, or is no text.
    """
    values = features.get(name, ())
    if not values:
        return None
    if len(values) > 1:
        raise ValueError(f"its feature {name!r} has {len(values)} values")
    value = values[0]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"its feature {name!r} is no text: {error}") from error
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
