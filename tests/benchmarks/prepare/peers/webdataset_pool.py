"""WebDataset: a pool of processes, each writing whole shards with ``ShardWriter``."""

from __future__ import annotations

import functools
import multiprocessing
import sys
from pathlib import Path

import webdataset

from tests.benchmarks.inputs.photographs import Photograph, arguments, convert, key_of, photographs


def write_shard(out: Path, codec: str, shard: tuple[int, list[Photograph]]) -> None:
    """One tar file: of each photograph its JPEG and its class."""
    number, files = shard
    with webdataset.ShardWriter(
        str(out / "%05d.tar"), maxcount=sys.maxsize, start_shard=number, verbose=0
    ) as to:
        for path, label in files:
            to.write({"__key__": key_of(path), "jpg": convert(path, codec), "cls": label})


def main() -> None:
    told = arguments("webdataset_pool")
    told.out.mkdir(parents=True)
    files = photographs(told.source)
    shards = [(number, files[number :: told.shards]) for number in range(told.shards)]
    with multiprocessing.Pool(told.workers) as pool:
        pool.map(functools.partial(write_shard, told.out, told.codec), shards, chunksize=1)


if __name__ == "__main__":
    main()
