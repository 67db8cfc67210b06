"""The records of one split: metadata known before reading, checks, and errors that name a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, ShardmillError
from shardmill.infra.format.examples import ImageRecord
from shardmill.infra.format.known_features import class_name
from shardmill.infra.format.records import Container
from shardmill.training.reading.records.damage import BadRecords, restore
from shardmill.training.reading.records.split_table import SplitTable


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

    @property
    def container(self) -> Container:
        """The container of the records in the shards."""
        return self.version.manifest.container

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

    def check(self, ordinal: int, record: ImageRecord) -> None:
        """Compare a record with its row of the index.

        Raises:
            CorruptDataError: the id, the label, the height or the width differ.
        """
        table = self.table
        found = (record.id, record.label, record.height, record.width)
        facts = (table.label[ordinal], table.height[ordinal], table.width[ordinal])
        expected = (table.id_of(ordinal), *map(int, facts))
        if found != expected:
            raise CorruptDataError(f"(id, label, height, width) is {found}, the index says {expected}")

    def named(self, ordinal: int, error: ShardmillError) -> CorruptDataError:
        """Return ``error`` with the record, its place and the remedy added."""
        path, offset_bytes, _ = self.table.place(ordinal)
        record_id = self.table.id_of(ordinal)
        return CorruptDataError(
            f"record {record_id} at byte {offset_bytes} of {path}: {error.message}", restore(self.version.ref)
        )

    def leave_out(self, ordinal: int, error: CorruptDataError) -> None:
        """Count a damaged record as left out.

        Raises:
            CorruptDataError: as many as ``reading.max_bad_records`` allows were left out before.
        """
        self.bad.add(self.table.id_of(ordinal), self.table.place(ordinal)[0], error)
