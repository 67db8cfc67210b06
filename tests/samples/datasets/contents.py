"""The content of a version, record by record, for comparing versions with each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import Shard
from shardmill.infra.format.examples import ImageRecord, parse_example, parse_whole_example
from shardmill.infra.format.features import FeatureValues
from shardmill.infra.format.records import iter_records


def records(version: DatasetVersion) -> set[tuple[str, str, bytes]]:
    """(id, name of the class, stored image) of every record; ids stand once in a version."""
    container = version.manifest.container
    examples = [
        parse_example(payload)
        for shard in version.manifest.shards
        for _, _, payload in iter_records(version.storage, shard.path, container)
    ]
    found = {(example.id, example.label_name, example.image) for example in examples}
    assert len(found) == len(examples)
    return found


def indexed_records(
    version: DatasetVersion,
) -> Iterator[tuple[Shard, dict[str, Any], ImageRecord, dict[str, FeatureValues]]]:
    """Shard, row of the index, record and its further features, of every record."""
    for shard in version.manifest.shards:
        index = version.index(shard).to_pylist()
        payloads = iter_records(version.storage, shard.path, version.manifest.container)
        for row, (_, _, payload) in zip(index, payloads, strict=True):
            yield shard, row, *parse_whole_example(payload)


def splits(version: DatasetVersion) -> dict[str, str]:
    """Record id -> its split."""
    return {
        record_id: shard.split
        for shard in version.manifest.shards
        for record_id in version.index(shard)["id"].to_pylist()
    }


def outcomes(version: DatasetVersion) -> dict[str, tuple[str, str | None, str | None, str | None]]:
    """URI -> what became of it: outcome, reason, record id, label."""
    rows = version.inputs().to_pylist()
    return {row["uri"]: (row["outcome"], row["reason"], row["record_id"], row["label"]) for row in rows}
