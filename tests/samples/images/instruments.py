"""Folders of images as microscopes and sensors make them, written by tifffile: a class a channel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tifffile

CLASSES = ("nuclei", "membrane")


def make_instrument_files(root: Path, dtype: str, channels: int, count: int) -> Path:
    """Write ``count`` TIFFs for each class, whose planes lie one behind the other; return their folder.

    A class has a bright spot in a channel of its own: 12 bits of uint16, or reflectances of float32.
    """
    chance = np.random.default_rng(channels)
    distance = np.hypot(*np.mgrid[-1:1:40j, -1:1:48j])
    for bright, name in enumerate(CLASSES):
        folder = root / name
        folder.mkdir(parents=True)
        for number in range(count):
            pixels = chance.uniform(200, 1_100, (40, 48, channels))
            pixels[:, :, bright] += 2_000 * np.clip(1 - distance * chance.uniform(1, 2), 0, 1)
            stored = (pixels / 4_095 if dtype == "float32" else pixels).astype(dtype)
            planes = np.moveaxis(stored, 2, 0)
            tifffile.imwrite(
                folder / f"{number:02}.tif", planes, photometric="minisblack", planarconfig="separate"
            )
    return root
