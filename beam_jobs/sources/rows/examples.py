"""Records that are ``tf.train.Example`` messages: their features, and their rows, collected one by one.

The image is the feature whose bytes begin as an image file does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import ColumnsConfig
from shardmill.beam_jobs.reasons import NO_IMAGE
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.table.columns import trimmed
from shardmill.beam_jobs.sources.roles import (
    RECORD_LABEL_NAMES,
    RECORD_LIST_NAMES,
    Column,
    Offer,
    Roles,
    image_of,
    roles_of,
)
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken
from shardmill.infra.codecs.formats import sniff
from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.infra.format.examples import Values, parse_features
from shardmill.infra.format.known_features import LabelKind

Record = tuple[int, bytes, str | None]  # position, payload, why it cannot be read

_DAMAGED_RECORDS = 16  # at the beginning of a source; if there are more, it holds other records
_OF_OBJECTS = "image/object/"
_RECORDS_TRIED = 16  # to recognise the image
_TYPES = {bytes: pa.binary(), float: pa.float32(), int: pa.int64()}


@dataclass(frozen=True)
class FeatureMap:
    """The features of the records of a source.

    Attributes:
        roles: the feature of each role.
        kind: kind of the labels.
        single: features of labels that hold one value.
    """

    roles: Roles
    kind: LabelKind
    single: frozenset[str] = frozenset()


def find_features(uri: str, payload: bytes, settings: ColumnsConfig, kind: LabelKind) -> FeatureMap:
    """Find the features by the first record of a source.

    Args:
        uri: URI of the record's file, for errors.
        payload: the serialised ``tf.train.Example``.
        settings: names of features that the user gives.
        kind: kind of the labels.

    Raises:
        ConfigError: a feature is not there, or which one is meant cannot be told.
    """
    try:
        offer = _offered(f"the first record of {uri}", payload)
    except CorruptDataError as error:
        raise ConfigError(
            f"the records of {uri} are not tf.train.Example messages", "only such records are read"
        ) from error
    single = frozenset({*settings.label_columns, *settings.target_columns})
    return FeatureMap(roles_of(offer, settings, kind, may_lack=True), kind, single)


def recognised_image(records: Iterable[tuple[bytes, str | None]]) -> str:
    """Return the name of the feature that holds the image in the first records of a file.

    Args:
        records: payload, and why it cannot be read.

    Raises:
        RowFileBroken: none of them has an image.
    """
    for payload, fault in islice(records, _RECORDS_TRIED):
        if fault is None:
            try:
                return image_of(_offered("a record", payload), None)
            except (CorruptDataError, ConfigError):
                continue
    raise RowFileBroken("none of its first records has an image: name the feature with source.columns.image")


def image_in(payload: bytes, image: str) -> bytes:
    """Return the image in a record.

    Raises:
        SourceFault: there is none. CorruptDataError: the record is no example.
    """
    values = parse_features(payload).get(image, ())
    if len(values) != 1 or not isinstance(values[0], bytes):
        raise SourceFault(NO_IMAGE, f"its feature {image!r} is not a single value of bytes")
    return values[0]


def _offered(where: str, payload: bytes) -> Offer:
    features = parse_features(payload)
    columns = [
        Column(name, holds_images=_is_image(name, features[name]), is_empty=not features[name])
        for name in sorted(features)
    ]
    return Offer(where, "feature", columns, RECORD_LABEL_NAMES, RECORD_LIST_NAMES)


def _is_image(name: str, values: Values) -> bool:
    if name.startswith(_OF_OBJECTS):  # a mask of the one object
        return False
    return len(values) == 1 and isinstance(values[0], bytes) and sniff(values[0]) is not None


@dataclass
class RowsOfExamples:
    """Collects the records of a file, one after the other.

    Args:
        features: roles of the features.
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
                image = found.get(self.features.roles.image, ())
                names = (self._class, self.features.roles.split, self.features.roles.group)
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
        label = self.features.roles.label
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
            columns={name: columns[name] for name in self.features.roles.others},
            are_lists=True,
        )

    @property
    def _class(self) -> str | None:
        """The feature with the one class of a record."""
        return self.features.roles.label if self.features.kind == "class" else None

    @property
    def _listed(self) -> tuple[str, ...]:
        """The features whose values are copied unchanged."""
        roles = self.features.roles
        label = roles.label if self._class is None else None
        return tuple(dict.fromkeys([*([label] if label is not None else []), *roles.others]))

    def _list(self, features: Mapping[str, Values], name: str) -> list[Any] | None:
        """Return the values of a feature; None if the record lacks it, or it is empty.

        An empty list of several labels says that the image has none of them.

        Raises:
            ValueError: they have another type than in other records, or are several where one is meant.
        """
        values = list(features.get(name, ()))
        if not values:
            are_labels = name == self.features.roles.label and self.features.kind == "multi"
            return [] if are_labels and name in features else None
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
        records: serialised records of the file.
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
