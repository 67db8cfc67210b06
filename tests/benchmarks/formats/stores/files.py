"""A folder of JPEG files, and decoded pixels in one memory-mapped file."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.formats.stores.storing import Example, Format, main
from tests.benchmarks.inputs.photographs import photographs
from tests.benchmarks.read.peers.reading import decode


def write_files(examples: Iterator[Example], out: Path) -> None:
    for number, (image, label) in enumerate(examples):
        folder = out / f"{label:03d}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number:08d}.jpg").write_bytes(image)


class Files:
    """Opened by listing the folder."""

    def __init__(self, out: Path) -> None:
        self._paths = [path for path, _ in photographs(out)]
        self.num_records = len(self._paths)

    def scan(self) -> Iterator[bytes]:
        return (Path(path).read_bytes() for path in self._paths)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return [Path(self._paths[number]).read_bytes() for number in numbers]


def write_pixels(examples: Iterator[Example], out: Path) -> None:
    """Pixels one image after another, and where each lies."""
    places, offset = [], 0
    with (out / "pixels.bin").open("wb") as to:
        for image, label in examples:
            pixels = decode(image)
            places.append((offset, *pixels.shape[:2], label))
            to.write(pixels.data)
            offset += pixels.size
    (out / "places.json").write_text(json.dumps(places))


class Pixels:
    """Views into the mapped file: nothing is read before it is looked at."""

    def __init__(self, out: Path) -> None:
        with (out / "pixels.bin").open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._pixels: Any = np.frombuffer(self._map, np.uint8)
        self._places = json.loads((out / "places.json").read_text())
        self.num_records = len(self._places)

    def scan(self) -> Iterator[Any]:
        return (self._view(number) for number in range(self.num_records))

    def read(self, numbers: Sequence[int]) -> list[Any]:
        return [self._view(number) for number in numbers]

    def _view(self, number: int) -> Any:
        offset, height, width, _ = self._places[number]
        return self._pixels[offset : offset + height * width * 3].reshape(height, width, 3)


if __name__ == "__main__":
    main(
        {
            "files": Format(write_files, lambda work, out: Files(out)),
            "pixels": Format(write_pixels, lambda work, out: Pixels(out)),
        }
    )
