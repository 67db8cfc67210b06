"""Shardmill's own TFRecord shards, uncompressed and gzip, by its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shardmill import open_dataset
from shardmill.infra.format.examples import ImageRecord, build_example
from shardmill.infra.format.records import Container, pack_record
from tests.benchmarks.formats.stores.storing import Example, Format, main

_SHARDS = 8


def write(examples: Iterator[Example], out: Path, container: Container) -> None:
    """The shards alone: what ``prepare`` does besides is no matter of the format."""
    shards = [(out / f"train-{number:05d}.tfrecord").open("wb") for number in range(_SHARDS)]
    for number, (image, label) in enumerate(examples):
        record = ImageRecord(f"{number:016x}", image, label, str(label), 256, 341, 3)
        shards[number % _SHARDS].write(pack_record(build_example(record), container))
    for shard in shards:
        shard.close()


class Shards:
    """The records of a published version."""

    def __init__(self, work: Path, container: Container) -> None:
        self._reader = open_dataset(f"photographs-{container}", work / "datasets").reader("train")
        table = self._reader.table
        self._starts = np.flatnonzero(np.diff(table.shard, prepend=-1)).tolist()
        self.num_records = len(table)

    def scan(self) -> Iterator[Any]:
        """A run of neighbours by one read."""
        for first, end in zip(self._starts, [*self._starts[1:], self.num_records], strict=True):
            for begin in range(first, end, 64):
                for stored in self._reader.read_run(begin, min(begin + 64, end)):
                    yield stored.image

    def read(self, numbers: Sequence[int]) -> list[Any]:
        return [stored.image for stored in self._reader.read_images(np.array(numbers, np.int64))]


def _format(container: Container) -> Format:
    opened: Callable[[Path, Path], Any] = lambda work, out: Shards(work, container)  # noqa: E731
    return Format(partial(write, container=container), opened)


if __name__ == "__main__":
    main({"tfrecord": _format("none"), "tfrecord-gzip": _format("gzip")})
