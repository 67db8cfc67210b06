"""Count what a prepare command wrote: records and bytes."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from shardmill.infra.format.records import iter_records
from shardmill.infra.storage.filesystem import Storage


def count_tfrecords(out: Path) -> tuple[int, int]:
    """Count (records, bytes) of all TFRecord files below a folder and check every checksum."""
    records = 0
    files = [path for path in out.rglob("*") if path.is_file() and ".tfrecord" in path.name]
    for path in files:
        packed = "gzip" if path.suffix == ".gz" else "none"
        records += sum(1 for _ in iter_records(Storage.at(str(path.parent)), path.name, packed))
    return records, sum(path.stat().st_size for path in files)


def count_tars(out: Path) -> tuple[int, int]:
    """Count (photographs, bytes) of all tar files in a folder."""
    files = list(out.glob("*.tar"))
    images = 0
    for path in files:
        with tarfile.open(path) as archive:
            images += sum(member.name.endswith(".jpg") for member in archive)
    return images, sum(path.stat().st_size for path in files)


def count_mds(out: Path) -> tuple[int, int]:
    """Count (samples, bytes) of the MDS shards that the index in a folder lists."""
    shards = json.loads((out / "index.json").read_text())["shards"]
    files = [out / shard["raw_data"]["basename"] for shard in shards]
    return sum(shard["samples"] for shard in shards), sum(path.stat().st_size for path in files)
