"""Grain over ArrayRecord: shuffled, mapped and batched in two threads; worker processes take a sixth more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from tests.benchmarks.inputs.photographs import photographs
from tests.benchmarks.read.peers.reading import BATCH, WORKERS, main, random_example

_SHARDS = 8


def prepare(work: Path, out: Path) -> None:
    out.mkdir(parents=True)
    files = photographs(work / "jpegs")
    for shard in range(_SHARDS):
        # One record per group, as its guide advises for random access.
        to = ArrayRecordWriter(str(out / f"{shard:05d}.arrayrecord"), "group_size:1,uncompressed")
        for path, label in files[shard::_SHARDS]:
            to.write(label.to_bytes(4, "little") + Path(path).read_bytes())
        to.close()


def example(record: bytes) -> tuple[Any, Any]:
    return random_example(record[4:]), np.int32(int.from_bytes(record[:4], "little"))


def _examples(out: Path) -> Any:
    source = grain.sources.ArrayRecordDataSource(sorted(str(path) for path in out.glob("*.arrayrecord")))
    return grain.MapDataset.source(source).shuffle(seed=0).repeat().map(example).batch(BATCH)


def processes(work: Path, out: Path) -> Iterator[Any]:
    dataset = _examples(out).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS, per_worker_buffer_size=2))
    return iter(dataset)


def threads(work: Path, out: Path) -> Iterator[Any]:
    dataset = _examples(out).to_iter_dataset(
        grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=2 * WORKERS)
    )
    return iter(dataset)


if __name__ == "__main__":
    main({"threads": threads, "processes": processes}, prepare)
