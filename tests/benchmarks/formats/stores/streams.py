"""WebDataset's tar shards, which are read from end to end, and MosaicML's MDS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import webdataset
from streaming import LocalDataset, MDSWriter

from tests.benchmarks.formats.stores.storing import Example, Format, main

_SHARD_BYTES = 1 << 26


def write_tar(examples: Iterator[Example], out: Path) -> None:
    with webdataset.ShardWriter(str(out / "%05d.tar"), maxsize=_SHARD_BYTES, verbose=0) as to:
        for number, (image, label) in enumerate(examples):
            to.write({"__key__": f"{number:08d}", "jpg": image, "cls": label})


class Tar:
    def __init__(self, out: Path) -> None:
        self._shards = sorted(str(path) for path in out.glob("*.tar"))
        self.num_records = -1  # not known before the end

    def scan(self) -> Iterator[bytes]:
        dataset: Any = webdataset.WebDataset(self._shards, shardshuffle=False, empty_check=False)
        return (row["jpg"] for row in dataset)


def write_mds(examples: Iterator[Example], out: Path) -> None:
    with MDSWriter(out=str(out), columns={"image": "bytes", "label": "int"}, size_limit=_SHARD_BYTES) as to:
        for image, label in examples:
            to.write({"image": image, "label": label})


class Mds:
    def __init__(self, out: Path) -> None:
        self._rows = LocalDataset(str(out))
        self.num_records = self._rows.size

    def scan(self) -> Iterator[bytes]:
        return (self._rows[number]["image"] for number in range(self.num_records))

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return [self._rows[number]["image"] for number in numbers]


if __name__ == "__main__":
    main(
        {
            "tar": Format(write_tar, lambda work, out: Tar(out)),
            "mds": Format(write_mds, lambda work, out: Mds(out)),
        }
    )
