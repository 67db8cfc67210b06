"""The dataset of the tests of staging, and what is asked of the object store that holds it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from shardmill.infra.dataset.version import DatasetVersion
from tests.samples.datasets.published import coloured, publish
from tests.samples.stores.object_store import ObjectStore

NUM_SHARDS = 6
_COUNTS = {"train": {"a": 30, "b": 18}, "validation": {"a": 3, "b": 3}}


def publish_set(root: Path) -> DatasetVersion:
    """``set@1``, whose splits have ``NUM_SHARDS`` shards each."""
    return publish(root, coloured(_COUNTS), name="set", shards_per_split=NUM_SHARDS)


def sizes(version: DatasetVersion, split: str = "train") -> list[int]:
    """Bytes of each shard of a split."""
    return [shard.num_bytes for shard in version.shards(split)]


def fetched(store: ObjectStore) -> Counter[str]:
    """Requests for each shard."""
    return Counter(path.rsplit("/", 1)[-1] for path in store.gets if path.endswith(".gz"))
