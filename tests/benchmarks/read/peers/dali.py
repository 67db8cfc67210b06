"""NVIDIA DALI on the CPU: its file reader, its fused decoder with a random crop, two threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from tests.benchmarks.read.peers.reading import BATCH, RATIO, SCALE, SIZE, WORKERS, main


@pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None, prefetch_queue_depth=2)
def photographs(folder: str) -> Any:
    data, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="files")
    pixels = fn.decoders.image_random_crop(
        data, device="cpu", output_type=types.RGB, random_area=SCALE, random_aspect_ratio=RATIO
    )
    pixels = fn.resize(pixels, size=(SIZE, SIZE), interp_type=types.INTERP_LINEAR, antialias=False)
    return fn.flip(pixels, horizontal=fn.random.coin_flip()), labels


def batches(work: Path, out: Path) -> Iterator[Any]:
    pipeline = photographs(str(work / "jpegs"))
    pipeline.build()
    while True:
        images, labels = pipeline.run()
        yield np.array(images.as_tensor()), np.array(labels.as_tensor())[:, 0]


if __name__ == "__main__":
    main({"dali": batches})
