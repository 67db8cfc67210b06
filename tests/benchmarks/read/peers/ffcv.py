"""FFCV: its own file of JPEGs, its decoder with a random crop, compiled transforms, two threads.

It takes pixels and encodes them itself: its JPEGs are the others', encoded once more at the same quality.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip
from ffcv.writer import DatasetWriter
from PIL import Image

from tests.benchmarks.inputs.photographs import QUALITY, Photograph, photographs
from tests.benchmarks.read.peers.reading import BATCH, RATIO, SCALE, SIZE, WORKERS, endless, main

_FILE = "photographs.beton"


class Pictures:
    """(image, label) by number, as its writer wants them."""

    def __init__(self, files: list[Photograph]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        path, label = self._files[number]
        return Image.open(io.BytesIO(Path(path).read_bytes())).convert("RGB"), label


def prepare(work: Path, out: Path) -> None:
    out.mkdir(parents=True)
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=QUALITY), "label": IntField()}
    writer = DatasetWriter(str(out / _FILE), fields, num_workers=WORKERS)
    writer.from_indexed_dataset(Pictures(photographs(work / "jpegs")))


def batches(work: Path, out: Path) -> Iterator[Any]:
    decoder = RandomResizedCropRGBImageDecoder((SIZE, SIZE), scale=SCALE, ratio=RATIO)
    loader = Loader(
        str(out / _FILE),
        batch_size=BATCH,
        num_workers=WORKERS,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        batches_ahead=2,
        pipelines={"image": [decoder, RandomHorizontalFlip()], "label": [IntDecoder()]},
    )
    return endless(loader, lambda batch: (batch[0], batch[1][:, 0]))


if __name__ == "__main__":
    main({"ffcv": batches}, prepare)
