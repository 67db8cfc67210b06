"""MosaicML Streaming: local MDS shards through ``StreamingDataset`` and ``StreamingDataLoader``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from tests.benchmarks.inputs.photographs import photographs
from tests.benchmarks.read.peers.reading import BATCH, WORKERS, main, random_example

_COLUMNS = {"image": "bytes", "label": "int"}
_REPEAT = 50  # epochs in one


class Photographs(StreamingDataset):  # type: ignore[misc]
    """Examples out of MDS shards."""

    def __getitem__(self, at: Any) -> tuple[Any, int]:
        row = super().__getitem__(at)
        return torch.from_numpy(random_example(row["image"])), row["label"]


def prepare(work: Path, out: Path) -> None:
    with MDSWriter(out=str(out), columns=_COLUMNS, size_limit=1 << 26) as to:
        for path, label in photographs(work / "jpegs"):
            to.write({"image": Path(path).read_bytes(), "label": label})


def batches(work: Path, out: Path) -> Iterator[Any]:
    clean_stale_shared_memory()
    dataset = Photographs(
        streams=[Stream(local=str(out), repeat=_REPEAT)],
        shuffle=True,
        batch_size=BATCH,
        num_canonical_nodes=1,
    )
    loader = StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=WORKERS, prefetch_factor=2, drop_last=True
    )
    try:
        yield from loader
    finally:
        clean_stale_shared_memory()


if __name__ == "__main__":
    main({"mosaicml": batches}, prepare)
