"""Copying of records: encoded images from the spool, stored records from shards of the previous version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardmill.beam_jobs.assemble.shards_to_write import ShardsToWrite
from shardmill.beam_jobs.encode.blocks import spool_file
from shardmill.beam_jobs.spool.claims import note_damage
from shardmill.infra.errors import CorruptDataError, NotFoundError, StorageError
from shardmill.infra.format.examples import ImageRecord, build_example, parse_whole_example
from shardmill.infra.format.features import FeatureValues, are_same
from shardmill.infra.format.known_features import MASK_BYTES, class_name
from shardmill.infra.format.records import pack_record, unpack_record
from shardmill.infra.storage.range_reader import RangeReader


@dataclass(frozen=True, slots=True)
class RecordToCopy:
    """Values needed to write a planned record: columns of SPOOLED_PLAN_SCHEMA, and its further features."""

    id: str
    label: int
    block: int | None
    shard: int | None
    offset_bytes: int
    length_bytes: int
    height: int
    width: int
    features: Mapping[str, FeatureValues]


def image_and_mask(stored: bytes, features: Mapping[str, FeatureValues]) -> tuple[bytes, bytes | None]:
    """Divide what the spool holds of a record into its image and its mask; None if it has no mask.

    Args:
        stored: bytes of a block.
        features: further features of the record.
    """
    length = features.get(MASK_BYTES)
    if length is None:
        return stored, None
    end = len(stored) - length.values[0]
    return stored[:end], stored[end:]


class RecordCopier:
    """Fetches images from the spool, and stored records from shards."""

    def __init__(self, job: ShardsToWrite) -> None:
        self._job = job
        self._images = RangeReader(job.spool)
        self._shards = RangeReader(job.dataset)

    def close(self) -> None:
        """Close all files."""
        self._images.close()
        self._shards.close()

    def packed(self, record: RecordToCopy) -> bytes:
        """Return a record as the bytes to write to the shard.

        Raises:
            CorruptDataError: the bytes to copy are damaged or missing.
        """
        if record.shard is not None:
            return self._from_shard(record, self._job.previous_shards.paths[record.shard])
        assert record.block is not None  # planned records are stored in one or the other
        job = self._job
        stored = self._from_spool(record, spool_file(job.block_digests[record.block]))
        image, mask = image_and_mask(stored, record.features)
        name = class_name(job.classes, record.label)
        size = record.height, record.width, job.channels
        example = ImageRecord(record.id, image, record.label, name, *size, mask)
        return pack_record(build_example(example, record.features), job.container)

    def _from_spool(self, record: RecordToCopy, path: str) -> bytes:
        image = self._images.read(path, record.offset_bytes, record.length_bytes)
        if len(image) != record.length_bytes:
            raise CorruptDataError(
                f"{self._job.spool.uri}/{path} ends within the image of record {record.id}",
                f"delete {self._job.spool.uri} and run again",
            )
        return image

    def _from_shard(self, record: RecordToCopy, path: str) -> bytes:
        job = self._job
        try:
            stored = self._shards.read(path, record.offset_bytes, record.length_bytes)
            payload = unpack_record(stored, job.previous_shards.container)
            example, features = parse_whole_example(payload)
            if example.id != record.id:
                raise CorruptDataError(f"found record {example.id} where the index says {record.id}")
        except (CorruptDataError, NotFoundError, StorageError) as error:
            note_damage(job.spool, path)
            raise CorruptDataError(
                f"record {record.id} cannot be copied from {job.dataset.uri}/{path}: {error.message}",
                "run again: its image is then read from the source",
            ) from error
        name = class_name(job.classes, record.label)
        is_labelled_so = (example.label, example.label_name) == (record.label, name)
        if not is_labelled_so or not are_same(features, record.features):
            changed = replace(example, label=record.label, label_name=name)
            payload = build_example(changed, record.features)
        elif job.container == job.previous_shards.container:
            return stored
        return pack_record(payload, job.container)
