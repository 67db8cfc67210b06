"""Copying of records to the shards of a plan: images from the spool, stored records from old shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardmill.beam_jobs.encode.blocks import spool_file
from shardmill.beam_jobs.plan import PlannedShard
from shardmill.beam_jobs.spool import note_damage
from shardmill.infra.errors import CorruptDataError, NotFoundError, StorageError
from shardmill.infra.format.examples import ImageRecord, build_example, parse_whole_example
from shardmill.infra.format.features import FeatureValues, are_same
from shardmill.infra.format.known_features import MASK_BYTES, class_name
from shardmill.infra.format.layout import data_dir, index_file, shard_file, shard_stem
from shardmill.infra.format.records import Container, pack_record, unpack_record
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import RangeReader

NOTES_FOLDER = "shards"


@dataclass(frozen=True)
class ShardsToCopyFrom:
    """The shards of the previous version.

    Attributes:
        paths: relative to the dataset, by number.
        container: theirs.
    """

    paths: Sequence[str] = ()
    container: Container = "none"


NO_SHARDS = ShardsToCopyFrom()


@dataclass(frozen=True)
class ShardsToWrite:
    """Settings and places that all shards of a plan share.

    Attributes:
        spool: where the encoded blocks are, and the plan.
        dataset: the dataset's folder, where the shards go.
        plan_digest: names their folder in it.
        shards: shards of the plan; a shard's number is its place here.
        block_digests: digest of each block, by its number.
        classes: names, by label.
        channels: channels of the stored images.
        container: container ("gzip" or "none") of the shards.
        previous_shards: shards that records are copied from.
    """

    spool: Storage
    dataset: Storage
    plan_digest: str
    shards: Sequence[PlannedShard]
    block_digests: Sequence[str]
    classes: Sequence[str]
    channels: int
    container: Container
    previous_shards: ShardsToCopyFrom = NO_SHARDS

    def shard_path(self, number: int) -> str:
        """Path of a shard relative to the dataset."""
        shard = self.shards[number]
        name = shard_file(shard.split, shard.index, shard.count, self.container)
        return f"{data_dir(self.plan_digest)}/{name}"

    def index_path(self, number: int) -> str:
        """Path of a shard's index relative to the dataset."""
        shard = self.shards[number]
        return f"{data_dir(self.plan_digest)}/{index_file(shard.split, shard.index, shard.count)}"

    def note_path(self, number: int) -> str:
        """Path of the note of a complete shard, relative to the spool."""
        shard = self.shards[number]
        return f"{NOTES_FOLDER}/{self.plan_digest}/{shard_stem(shard.split, shard.index, shard.count)}.json"


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
