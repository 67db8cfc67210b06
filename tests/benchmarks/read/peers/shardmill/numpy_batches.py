"""Shardmill without a framework, and through Grain's loader; its decoder in a tight loop in two processes."""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from shardmill import open_dataset
from shardmill.training.augment.parameters import draw_parameters
from shardmill.training.config import AugmentSettings
from shardmill.training.reading.decode import decode_window
from tests.benchmarks.inputs.photographs import photographs
from tests.benchmarks.read.peers.reading import BATCH, RATIO, SCALE, SIZE, WORKERS, main

AUGMENT = AugmentSettings(scale=SCALE, ratio=RATIO)
_EPOCHS = 10_000
_TICK_SECONDS = 0.05


def batches(work: Path, out: Path) -> Iterator[Any]:
    dataset = open_dataset("photographs-none", work / "datasets")
    found = dataset.batches("train", batch_size=BATCH, image_size=SIZE, augment=AUGMENT, epochs=_EPOCHS)
    return map(tuple, found)


def through_grain(work: Path, out: Path) -> Iterator[Any]:
    import grain

    dataset = open_dataset("photographs-none", work / "datasets")
    read = dataset.grain(
        "train", batched=True, batch_size=BATCH, image_size=SIZE, augment=AUGMENT, epochs=_EPOCHS
    )
    loader = grain.DataLoader(
        data_source=read.source,
        sampler=read.sampler,
        shard_options=grain.sharding.NoSharding(),
        read_options=grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=WORKERS),
    )
    return ((element["image"], element["label"]) for element in loader)


def limit(work: Path, out: Path) -> Iterator[int]:
    return decoded([Path(path).read_bytes() for path, _ in photographs(work / "jpegs")], WORKERS)


def decoded(images: list[bytes], num_processes: int) -> Iterator[int]:
    """Images decoded, cropped and resized since the last look, by processes that do nothing else."""
    context = multiprocessing.get_context("fork")  # the images are there already
    counts = [context.Value(ctypes.c_int64, lock=False) for _ in range(num_processes)]
    processes = [
        context.Process(target=_decode_for_ever, args=(images[number::num_processes], count), daemon=True)
        for number, count in enumerate(counts)
    ]
    for process in processes:
        process.start()
    seen = 0
    try:
        while not all(count.value for count in counts):
            time.sleep(_TICK_SECONDS)
        while True:
            time.sleep(_TICK_SECONDS)
            done = sum(count.value for count in counts)
            yield done - seen
            seen = done
    finally:
        for process in processes:
            process.kill()


def _decode_for_ever(images: list[bytes], count: Any) -> None:
    headers = [simplejpeg.decode_jpeg_header(image) for image in images]
    shapes = np.array([(height, width, 3) for height, width, *_ in headers])
    positions = np.arange(len(images), dtype=np.int64)
    windows = draw_parameters(AUGMENT, 0, 0, positions, shapes[:, 0], shapes[:, 1], SIZE).windows.tolist()
    sizes: list[Any] = [tuple(shape) for shape in shapes.tolist()]
    out = np.empty((SIZE, SIZE, 3), np.uint8)
    while True:
        for image, shape, window in zip(images, sizes, windows, strict=True):
            decode_window(image, "jpeg", shape, window, out)
            count.value += 1


if __name__ == "__main__":
    main({"batches": batches, "grain": through_grain, "limit": limit})
