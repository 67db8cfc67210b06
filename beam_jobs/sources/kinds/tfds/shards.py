"""The records of a shard: where they lie, their labels, and their further features as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.array_record import ArrayRecordFile
from shardmill.beam_jobs.sources.kinds.tfds.metadata import Shard
from shardmill.beam_jobs.sources.kinds.tfds.roles import FurtherColumn, Roles
from shardmill.beam_jobs.sources.kinds.tfrecord import Frames, unpacked
from shardmill.beam_jobs.sources.rows.examples import text_of
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.examples import Values, parse_features
from shardmill.infra.format.features import MISSING

_MAX_LOST_ROWS = 1_000_000  # most rows of lost records of a shard; a single row stands for more

Record = tuple[int, bytes, str | None]  # position, payload, why it cannot be read


@dataclass(frozen=True)
class ShardRows:
    """The rows of a shard.

    Attributes:
        rows: of its records, and of those that are lost; labels are names where the classes have names.
        more: records beyond those that the metadata count.
    """

    rows: FileRows
    more: int


def read_shard(
    file: RowFile, shard: Shard, file_format: str, roles: Roles, *, group: str | None, split: str | None
) -> ShardRows:
    """Read the records of a shard. Each record that the metadata count and that is not there is a row too.

    Args:
        file: the shard, which need not be there.
        shard: what the metadata say of it.
        file_format: tfrecord or array_record.
        roles: the feature of each role.
        group: key of the feature with the group, or None.
        split: key of the feature with the split, or None.
    """
    found = _Rows(roles, group, split)
    damage: str | None = None
    try:
        for position, payload, fault in records_of(file, file_format):
            found.add(position, payload, fault)
    except (RowFileBroken, SourceFault) as error:
        damage = getattr(error, "message", str(error))
    num_found = len(found.positions)
    lost = shard.num_records - num_found
    if lost > 0:
        why = damage or f"the file ends with record {num_found:,}"
        message = f"dataset_info.json counts {shard.num_records:,} records, and {lost:,} are lost: {why}"
        if lost > _MAX_LOST_ROWS:
            return found.rows(file, message)
        for _ in range(lost):
            found.add(0, b"", message)
        damage = None
    return found.rows(file, damage, more=max(0, -lost))


def records_of(file: RowFile, file_format: str) -> Iterator[Record]:
    """Yield the records of a shard in order: position for the reader, payload, and why it cannot be read.

    Args:
        file: the shard.
        file_format: tfrecord or array_record.

    Raises:
        RowFileBroken: the rest cannot be read. SourceFault: the file is gone or unreadable.
    """
    if file_format == "array_record":
        opened = ArrayRecordFile(file)
        try:
            for number, (payload, fault) in enumerate(opened.all()):
                yield number, payload, fault
        finally:
            opened.close()
        return
    with unpacked(file, "none") as stream:
        frames = Frames(stream)
        for frame in frames:
            yield frame.offset, frame.payload, frame.fault
        if frames.damage is not None:
            raise RowFileBroken(frames.damage)


@dataclass
class _Rows:
    """Collects the records of a shard."""

    roles: Roles
    group: str | None
    split: str | None
    positions: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    label_lists: list[list[str] | list[float] | None] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    faults: list[str | None] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = [[] for _ in self.roles.columns]

    def add(self, position: int, payload: bytes, fault: str | None) -> None:
        """Add a record."""
        found: Mapping[str, Values] = {}
        row: list[Any] = [None] * len(self.values)
        label, labels, group, split = None, None, None, None
        try:
            if fault is None:
                found = parse_features(payload)
                label, labels = self._label(found)
                group = text_of(found, self.group) if self.group is not None else None
                split = text_of(found, self.split) if self.split is not None else None
                row = [_value(found.get(column.key, ()), column) for column in self.roles.columns]
        except (CorruptDataError, ValueError) as error:
            fault, row = str(error), [None] * len(self.values)
        image = found.get(self.roles.image, ())
        self.positions.append(position)
        self.sizes.append(sum(len(value) for value in image if isinstance(value, bytes)))
        self.labels.append(label)
        self.label_lists.append(labels)
        self.groups.append(group)
        self.splits.append(split)
        self.faults.append(fault)
        for column, value in zip(self.values, row, strict=True):
            column.append(value)

    def _label(self, found: Mapping[str, Values]) -> tuple[str | None, list[str] | list[float] | None]:
        """The class, or the classes or targets; classes by their numbers where they have no names.

        Raises:
            ValueError: it is no class.
        """
        key = self.roles.label
        if key is None:
            return None, None
        values = found.get(key, ())
        if self.roles.labels == "targets":
            if not all(isinstance(value, int | float) for value in values):
                raise ValueError(f"its targets {key!r} are no numbers")
            return None, list(cast(Sequence[float], values)) or None
        if not all(isinstance(value, int) for value in values):
            raise ValueError(f"its label {key!r} is no number")
        names = [self._name(number) for number in cast(Sequence[int], values)]
        if self.roles.labels == "multi":
            if None in names:
                unknown = values[names.index(None)]
                raise ValueError(f"its label {key!r} has {unknown!r}, the number of no class")
            return None, cast(list[str], names)
        if len(names) > 1:
            raise ValueError(f"its label {key!r} has {len(names)} values")
        return (names[0] if names else None), None

    def _name(self, number: int) -> str | None:
        """The name of a class; None if it has that of no class, such as the -1 of hidden labels."""
        names = self.roles.classes
        if number < 0 or (names and number >= len(names)):
            return None
        return names[number] if names else str(number)

    def rows(self, file: RowFile, damage: str | None, more: int = 0) -> ShardRows:
        """Return the records that were added."""
        kinds = {"multi": pa.string(), "targets": pa.float32()}
        kind = kinds.get(self.roles.labels)
        rows = FileRows(
            file,
            positions=np.array(self.positions, np.int64),
            sizes=np.array(self.sizes, np.int64),
            labels=pa.array(self.labels, pa.string()),
            splits=pa.array(self.splits, pa.string()) if self.split is not None else None,
            groups=pa.array(self.groups, pa.string()) if self.group is not None else None,
            faults=pa.array(self.faults, pa.string()),
            damage=damage,
            label_values=None if kind is None else pa.array(self.label_lists, pa.list_(kind)),
            label_name=self.roles.label or "",
            columns={
                column.key: pa.array(found, column.feature.arrow_type)
                for column, found in zip(self.roles.columns, self.values, strict=True)
            },
        )
        return ShardRows(rows, more)


def _value(values: Values, column: FurtherColumn) -> Any:
    """Return the value of a further feature as Arrow takes it; None if the record lacks it.

    Raises:
        ValueError: it is of another type or length than the metadata say.
    """
    feature = column.feature
    wanted = type(MISSING[feature.dtype])
    if not all(isinstance(value, wanted) for value in values):
        raise ValueError(f"its feature {column.key!r} does not hold {feature.dtype}, as features.json says")
    found = [_text(value, column.key) for value in values] if feature.is_text else list(values)
    if feature.shape == "variable":
        return found
    if not found:
        return None
    wanted_length = feature.length or 1
    if len(found) != wanted_length:
        raise ValueError(f"its feature {column.key!r} has {len(found)} values, not {wanted_length}")
    return found[0] if feature.shape == "scalar" else found


def _text(value: Any, key: str) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"its feature {key!r} is no text: {error}") from error
