"""Records of a split by ordinal, straight from its shards. Knows no framework.

Reading a record costs one ``pread``, for gzip one inflate, and the check of its checksum. Nothing is returned
that is not what was written: each record is checked against its index.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from infra.catalog import DatasetVersion
from infra.errors import CorruptDataError, NotFoundError
from infra.examples import ImageRecord, parse_example
from infra.ranges import RangeReader
from infra.records import unpack_record
from training.reading.table import SplitTable


class RecordReader:
    """Reads records of one split; safe for many threads."""

    def __init__(self, version: DatasetVersion, table: SplitTable) -> None:
        self.table = table
        self.image_encoding: str = version.manifest.image_encoding
        self._container = version.manifest.container
        self._ref = version.ref
        self._ranges = RangeReader(version.storage)

    def read(self, ordinal: int) -> ImageRecord:
        """The record with this number.

        Raises:
            CorruptDataError: names the shard and the record.
        """
        table = self.table
        path = table.paths[table.shard[ordinal]]
        offset, length = int(table.offset_bytes[ordinal]), int(table.length_bytes[ordinal])
        try:
            stored = self._ranges.read(path, offset, length)
            if len(stored) != length:
                raise CorruptDataError(f"the shard ends after {len(stored)} of {length} bytes")
            record = parse_example(unpack_record(stored, self._container))
            self._check(ordinal, record)
        except (CorruptDataError, NotFoundError) as error:
            name = table.id[ordinal].decode("ascii")
            raise CorruptDataError(
                f"record {name} at byte {offset} of {path}: {error.message}",
                f"run `shardmill verify {self._ref}`; a damaged shard must be restored or prepared again",
            ) from error
        return record

    def read_many(self, ordinals: npt.NDArray[np.int64]) -> list[ImageRecord]:
        """The records with these numbers, in this order."""
        return [self.read(ordinal) for ordinal in ordinals.tolist()]

    def _check(self, ordinal: int, record: ImageRecord) -> None:
        table = self.table
        found = (record.id.encode("ascii"), record.label, record.height, record.width)
        wanted = (table.id[ordinal], table.label[ordinal], table.height[ordinal], table.width[ordinal])
        if found != wanted:
            raise CorruptDataError(f"(id, label, height, width) is {found}, the index says {wanted}")

    def close(self) -> None:
        """Let go of all open files."""
        self._ranges.close()
