"""MosaicML Streaming: a pool of processes, each writing whole shards with ``MDSWriter``; then one index."""

from __future__ import annotations

import functools
import multiprocessing
import sys
from pathlib import Path

from streaming import MDSWriter
from streaming.base.util import merge_index

from tests.benchmarks.inputs.photographs import Photograph, arguments, convert, key_of, photographs

_COLUMNS = {"id": "str", "image": "bytes", "label": "int"}


def write_shard(out: Path, codec: str, shard: tuple[int, list[Photograph]]) -> None:
    """One MDS shard in a folder of its own, as the package's guide to parallel conversion has it."""
    number, files = shard
    with MDSWriter(out=str(out / f"{number:05d}"), columns=_COLUMNS, size_limit=sys.maxsize >> 32) as to:
        for path, label in files:
            to.write({"id": key_of(path), "image": convert(path, codec), "label": label})


def main() -> None:
    told = arguments("mosaicml_pool")
    told.out.mkdir(parents=True)
    files = photographs(told.source)
    shards = [(number, files[number :: told.shards]) for number in range(told.shards)]
    with multiprocessing.Pool(told.workers) as pool:
        pool.map(functools.partial(write_shard, told.out, told.codec), shards, chunksize=1)
    merge_index(str(told.out), keep_local=True)


if __name__ == "__main__":
    main()
