"""A source that changes while it is prepared: it grows, shrinks and rots."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from shardmill.infra.codecs import encode_jpeg

CLASSES = ("circle", "square", "triangle")
_FEWEST, _MOST = 60, 400


class ChangingSource:
    """A folder with a folder a class, and random changes to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._random = random.Random(seed)
        self._pixels = np.random.default_rng(seed)
        self._made = 0
        for label in CLASSES:
            (folder / label).mkdir(parents=True)
        self._grow(_FEWEST)

    def change(self) -> str:
        """Change something at random; return a description of it."""
        files = sorted(self.folder.glob("*/*.jpg"))
        count = self._random.randint(1, 8)
        if len(files) < _FEWEST or (len(files) < _MOST and self._random.random() < 0.6):
            self._grow(count)
            return f"{count} images came"
        chosen = self._random.sample(files, count)
        if self._random.random() < 0.7:
            for file in chosen:
                file.unlink()
            return f"{count} images went"
        for file in chosen:  # as a copy that was cut off, put in place at once
            _put(file, file.read_bytes()[:-200])
        return f"{count} images rotted"

    def _grow(self, count: int) -> None:
        for _ in range(count):
            label = CLASSES[self._made % len(CLASSES)]
            level = 60 + 60 * CLASSES.index(label)
            pixels = np.clip(self._pixels.normal(level, 40, (48, 56, 3)), 0, 255).astype(np.uint8)
            _put(self.folder / label / f"{self._made:06d}.jpg", encode_jpeg(pixels, 90))
            self._made += 1


def _put(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it, so that a listing never sees a part of it."""
    temporary = path.with_suffix(".part")
    temporary.write_bytes(content)
    temporary.replace(path)
