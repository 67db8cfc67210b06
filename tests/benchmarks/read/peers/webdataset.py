"""WebDataset: tar shards through ``WebLoader``, two workers, its shuffle buffer as in its examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import webdataset

from tests.benchmarks.inputs.photographs import key_of, photographs
from tests.benchmarks.read.peers.reading import BATCH, WORKERS, main, random_example

_SHARDS = 8
_BUFFER = 1000


def prepare(work: Path, out: Path) -> None:
    out.mkdir(parents=True)
    files = photographs(work / "jpegs")
    for shard in range(_SHARDS):
        with webdataset.TarWriter(str(out / f"{shard:05d}.tar")) as to:
            for path, label in files[shard::_SHARDS]:
                to.write({"__key__": key_of(path), "jpg": Path(path).read_bytes(), "cls": label})


def batches(work: Path, out: Path) -> Iterator[Any]:
    shards = sorted(str(path) for path in out.glob("*.tar"))
    dataset = (
        webdataset.WebDataset(
            shards, resampled=True, shardshuffle=False, handler=webdataset.reraise_exception
        )
        .shuffle(_BUFFER)
        .to_tuple("jpg", "cls")
        .map_tuple(lambda data: torch.from_numpy(random_example(data)), int)
        .batched(BATCH, partial=False)
    )
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=WORKERS, prefetch_factor=2)
    return iter(loader)


if __name__ == "__main__":
    main({"webdataset": batches}, prepare)
