"""The shards that a plan writes: where their records come from, and where their files go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmill.beam_jobs.plan import PlannedShard
from shardmill.infra.format.layout import data_dir, index_file, shard_file, shard_stem
from shardmill.infra.format.records import Container
from shardmill.infra.storage.filesystem import Storage

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
        channels: channels (1 or 3) of the stored images.
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
