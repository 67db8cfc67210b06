"""SPDL: files through its pipeline of threads; decoded by OpenCV or simplejpeg, or by its own FFmpeg.

Its guide asks for stages that release Python's lock. One stage makes whole batches, in two threads; the
source names the files of whole batches, since ``aggregate`` would take them one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from tests.benchmarks.inputs.photographs import Photograph, photographs
from tests.benchmarks.read.peers.reading import (
    BATCH,
    SIZE,
    WORKERS,
    main,
    random_example,
    random_window,
)


def shuffled(files: list[Photograph]) -> Iterator[list[Photograph]]:
    """The files of batches, in another order every time, without end."""
    while True:
        mixed = random.sample(files, len(files))
        yield from (mixed[at : at + BATCH] for at in range(0, len(files) - BATCH + 1, BATCH))


def by_functions(files: list[Photograph]) -> tuple[Any, Any]:
    images = np.empty((len(files), SIZE, SIZE, 3), np.uint8)
    for image, (path, _) in zip(images, files, strict=True):
        random_example(Path(path).read_bytes(), image)
    return images, np.array([label for _, label in files])


def by_ffmpeg(files: list[Photograph]) -> tuple[Any, Any]:
    frames = []
    for path, _ in files:
        packets = spdl.io.demux_image(path)
        top, left, height, width = random_window(packets.height, packets.width)
        mirrored = "hflip," if random.random() < 0.5 else ""
        steps = (
            f"crop={width}:{height}:{left}:{top},scale={SIZE}:{SIZE}:flags=bilinear,{mirrored}format=rgb24"
        )
        frames.append(spdl.io.decode_packets(packets, filter_desc=steps))
    return spdl.io.to_numpy(spdl.io.convert_frames(frames)), np.array([label for _, label in files])


def load(work: Path, make: Callable[[list[Photograph]], tuple[Any, Any]]) -> Iterator[Any]:
    pipeline = (
        PipelineBuilder()
        .add_source(shuffled(photographs(work / "jpegs")))
        .pipe(make, concurrency=WORKERS)
        .add_sink(2)
        .build(num_threads=WORKERS)
    )
    with pipeline.auto_stop():
        yield from pipeline


def functions(work: Path, out: Path) -> Iterator[Any]:
    return load(work, by_functions)


def ffmpeg(work: Path, out: Path) -> Iterator[Any]:
    return load(work, by_ffmpeg)


if __name__ == "__main__":
    main({"functions": functions, "ffmpeg": ffmpeg})
