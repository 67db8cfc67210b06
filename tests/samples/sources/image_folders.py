"""Small folders of real image files, made by the test that wants them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shardmill.infra.codecs import encode_jpeg


def write_image_folder(
    folder: Path, *, classes: tuple[str, ...] = ("circle", "square"), per_class: int = 20, size: int = 40
) -> Path:
    """``folder/class/NNN.jpg``: noise around a brightness that differs by class, so that it can be learnt."""
    random = np.random.default_rng(7)
    for number, label in enumerate(classes):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for image in range(per_class):
            level = 60 + 120 * number / max(1, len(classes) - 1)
            pixels = np.clip(random.normal(level, 20, (size, size + 8, 3)), 0, 255).astype(np.uint8)
            (folder / label / f"{image:03d}.jpg").write_bytes(encode_jpeg(pixels, 90))
    return folder


def write_many_large_images(folder: Path, count: int, *, size: int = 4000) -> Path:
    """``count`` different files that all take long to decode: one image with a number behind its end."""
    ramp = np.linspace(0, 255, size).astype(np.uint8)
    pixels = np.stack(
        [np.tile(ramp, (size, 1)), np.tile(ramp[:, None], (1, size)), np.full((size, size), 9, np.uint8)], 2
    )
    encoded = encode_jpeg(np.ascontiguousarray(pixels), 80)
    for number in range(count):
        label = folder / ("even", "odd")[number % 2]
        label.mkdir(parents=True, exist_ok=True)
        (label / f"{number:05d}.jpg").write_bytes(encoded + f"{number:08d}".encode())
    return folder
