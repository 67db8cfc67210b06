"""The records of one split: metadata known before reading, checks, and errors that name a record.

A damaged record raises an error, or up to a limit is left out and counted. It keeps its row, so that shapes
stay fixed: the row repeats another record of the batch at weight 0, as padding does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

import numpy as np

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, CorruptDataError, ShardmillError
from shardmill.infra.format.examples import ImageRecord
from shardmill.infra.format.known_features import class_name
from shardmill.infra.format.records import Container
from shardmill.infra.readable import counted
from shardmill.training.order import StepPlan
from shardmill.training.reading.records.split_table import SplitTable


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was left out: its id, its shard (relative to the dataset's folder), and the error."""

    id: str
    shard: str
    message: str


class BadRecords:
    """Collects the damaged records that a process met, each once. Safe for many threads.

    A copy in another process counts for itself.
    """

    def __init__(self, limit: int = 0) -> None:
        """``limit``: records that may be left out (``reading.max_bad_records``)."""
        self.limit = limit
        self._found: dict[tuple[str, str], BadRecord] = {}  # two data sets may have the same image
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[BadRecords], tuple[int]]:
        return BadRecords, (self.limit,)

    def add(self, record_id: str, shard: str, error: CorruptDataError) -> None:
        """Count a record as left out.

        Raises:
            CorruptDataError: no further record may be left out.
        """
        with self._lock:
            if (record_id, shard) in self._found:
                return
            if len(self._found) >= self.limit:
                raise self._one_too_many(error) from error
            self._found[record_id, shard] = BadRecord(record_id, shard, error.message)
            number = len(self._found)
        events.emit(
            {"event": "bad_record", "id": record_id, "shard": shard, "message": error.message}
            | {"number": number, "limit": self.limit}
        )
        events.log(f"left out ({number} of {self.limit} allowed): {error.message}", level="warning")

    def _one_too_many(self, error: CorruptDataError) -> CorruptDataError:
        if not self.limit:
            return CorruptDataError(error.message, error.remedy)
        return CorruptDataError(
            f"{error.message}; {counted(self.limit, 'damaged record')} were left out before, as "
            "max_bad_records allows",
            error.remedy,
        )

    def to_result(self) -> list[dict[str, str]]:
        """Return the records that were left out, the first one first, as JSON-able dicts."""
        with self._lock:
            return [asdict(record) for record in self._found.values()]


def restore(ref: str) -> str:
    """Return the remedy for a damaged shard of the version ``ref``."""
    return (
        f"run `shardmill verify {ref}`; restore the damaged shard from a copy, or prepare the dataset again"
    )


def without_rows(plan: StepPlan, bad: Sequence[int]) -> tuple[StepPlan, int | None]:
    """Turn bad rows into padding. Return the plan, and the row that they repeat; None if all are bad.

    Args:
        plan: the plan of a step, or of a rank's slice of it.
        bad: the bad rows of the plan.
    """
    ordinals, weights = plan.ordinals.copy(), plan.weights.copy()
    donor = next((row for row in range(ordinals.size) if row not in set(bad)), None)
    rows = list(bad)
    weights[rows] = 0
    if donor is not None:
        ordinals[rows] = ordinals[donor]
    return replace(plan, ordinals=ordinals, weights=weights), donor


class EncodedImage(NamedTuple):
    """An encoded image, its height, width (pixels) and number of channels, and its mask if it has one."""

    image: bytes | memoryview
    shape: tuple[int, int, int]
    mask: bytes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SplitRecords:
    """The records of one split of a dataset version.

    Attributes:
        version: the dataset version.
        table: the places, labels and sizes of the records.
        bad: counts the damaged records that batches leave out; by default none may be left out.
    """

    version: DatasetVersion
    table: SplitTable
    bad: BadRecords = field(default_factory=BadRecords)

    def version_of(self, ordinal: int) -> DatasetVersion:
        """Return the data set version that a record is stored in."""
        sets = self.version.data_sets
        return sets[0] if len(sets) == 1 else sets[int(self.table.data_set_of(np.array([ordinal]))[0])]

    def container(self, ordinal: int = 0) -> Container:
        """Return the container of a record in its shard."""
        return self.version_of(ordinal).manifest.container

    def check_one_encoding(self, what: str) -> None:
        """Check that all images in the shards are encoded alike.

        Raises:
            ConfigError: those of several data sets are not.
        """
        found = list(dict.fromkeys(one.manifest.image_encoding for one in self.version.data_sets))
        if len(found) > 1:
            raise ConfigError(
                f"{what} reads images of one encoding, and {self.version.ref} has {' and '.join(found)}",
                "leave it out, or prepare one of the data sets again with the image.encoding of the other",
            )

    @property
    def image_encoding(self) -> str:
        """The encoding of the images in the shards."""
        return self.version.manifest.image_encoding

    def stored_image(self, ordinal: int, image: bytes | memoryview, channels: int) -> EncodedImage:
        """Return a record's image with the height and width that the index states."""
        height, width = int(self.table.height[ordinal]), int(self.table.width[ordinal])
        return EncodedImage(image, (height, width, channels))

    def record(self, ordinal: int, stored: EncodedImage) -> ImageRecord:
        """Return the record whose image has been read."""
        label, record_id = int(self.table.label[ordinal]), self.table.id_of(ordinal)
        name = class_name(self.version.manifest.classes, label)
        return ImageRecord(record_id, bytes(stored.image), label, name, *stored.shape, stored.mask)

    def checked(self, ordinal: int, record: ImageRecord) -> ImageRecord:
        """Compare a record with its row of the index. Return it with its class among those of all data sets.

        Raises:
            CorruptDataError: the id, the label, the height or the width differ.
        """
        table = self.table
        if table.set_sizes:
            number = int(table.data_set_of(np.array([ordinal]))[0])
            label = self.version.joined_label(number, record.label)
            name = class_name(self.version.manifest.classes, label)
            record = replace(record, label=label, label_name=name)
        found = (record.id, record.label, record.height, record.width)
        facts = (table.label[ordinal], table.height[ordinal], table.width[ordinal])
        expected = (table.id_of(ordinal), *map(int, facts))
        if found != expected:
            raise CorruptDataError(f"(id, label, height, width) is {found}, the index says {expected}")
        return record

    def named(self, ordinal: int, error: ShardmillError) -> CorruptDataError:
        """Return ``error`` with the record, its place and the remedy added."""
        path, offset_bytes, _ = self.table.place(ordinal)
        record_id, stored_in = self.table.id_of(ordinal), self.version_of(ordinal)
        return CorruptDataError(
            f"record {record_id} at byte {offset_bytes} of {path}: {error.message}",
            restore(f"{stored_in.name}@{stored_in.version}"),
        )

    def leave_out(self, ordinal: int, error: CorruptDataError) -> None:
        """Count a damaged record as left out.

        Raises:
            CorruptDataError: as many as ``reading.max_bad_records`` allows were left out before.
        """
        self.bad.add(self.table.id_of(ordinal), self.table.place(ordinal)[0], error)
