"""Records, copied from where they lie: encoded images in the spool, stored records in earlier shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from beam_jobs.blocks import spool_file
from beam_jobs.spools import note_damage
from infra.errors import CorruptDataError, NotFoundError, StorageError
from infra.examples import ImageRecord, build_example, parse_example
from infra.ranges import RangeReader
from infra.records import Container, pack_record, unpack_record

if TYPE_CHECKING:
    from beam_jobs.assemble import AssembleTask


@dataclass(frozen=True)
class ShardsToCopyFrom:
    """The shards of the earlier version.

    Attributes:
        paths: relative to the dataset, by number.
        container: theirs.
    """

    paths: Sequence[str] = ()
    container: Container = "none"


NO_SHARDS = ShardsToCopyFrom()


class RecordCopier:
    """Fetches records from where they lie: images from the spool, stored records from shards."""

    def __init__(self, task: AssembleTask) -> None:
        self._task = task
        self._images = RangeReader(task.spool)
        self._shards = RangeReader(task.dataset)

    def close(self) -> None:
        """Let go of all open files."""
        self._images.close()
        self._shards.close()

    def packed(self, record_id: str, label: int, place: tuple[int, int, int], size: tuple[int, int]) -> bytes:
        """A record as it stands in the shard that is written.

        Args:
            record_id, label: of the record.
            place: block (or ``~shard`` of the earlier version), offset, length (bytes).
            size: height and width (pixels).

        Raises:
            CorruptDataError: it is not whole where it should be.
        """
        if place[0] < 0:
            return self._from_shard(record_id, label, place)
        task = self._task
        image = self._from_spool(record_id, place)
        record = ImageRecord(record_id, image, label, task.classes[label], *size, task.channels)
        return pack_record(build_example(record), task.container)

    def _from_spool(self, record_id: str, place: tuple[int, int, int]) -> bytes:
        path = spool_file(self._task.block_digests[place[0]])
        image = self._images.read(path, *place[1:])
        if len(image) != place[2]:
            raise CorruptDataError(
                f"{self._task.spool.uri}/{path} ends within the image of record {record_id}",
                f"delete {self._task.spool.uri} and run again",
            )
        return image

    def _from_shard(self, record_id: str, label: int, place: tuple[int, int, int]) -> bytes:
        task = self._task
        path = task.earlier.paths[~place[0]]
        try:
            stored = self._shards.read(path, *place[1:])
            payload = unpack_record(stored, task.earlier.container)
            record = parse_example(payload)
            if record.id != record_id:
                raise CorruptDataError(f"record {record.id} lies where {record_id} should")
        except (CorruptDataError, NotFoundError, StorageError) as error:
            note_damage(task.spool, path)
            raise CorruptDataError(
                f"record {record_id} cannot be copied from {task.dataset.uri}/{path}: {error.message}",
                "run again: its image is then read from the source",
            ) from error
        name = task.classes[label]
        if (record.label, record.label_name) != (label, name):
            payload = build_example(replace(record, label=label, label_name=name))
        elif task.container == task.earlier.container:
            return stored
        return pack_record(payload, task.container)
