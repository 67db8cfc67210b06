"""Small image folders, made on the spot, the same in every run."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from shardmill.infra.codecs import Pixels, encode_jpeg


def picture(seed: int, height: int = 48, width: int = 64) -> Pixels:
    """A picture that no other seed gives: blurred colour noise, uint8 [H, W, 3]."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR))


def jpeg(seed: int, height: int = 48, width: int = 64) -> bytes:
    """A small JPEG file."""
    return encode_jpeg(picture(seed, height, width), 85)


def png(seed: int, height: int = 48, width: int = 64) -> bytes:
    """A small PNG file."""
    sink = io.BytesIO()
    Image.fromarray(picture(seed, height, width)).save(sink, "PNG")
    return sink.getvalue()


def rotated_jpeg(seed: int, orientation: int, height: int = 48, width: int = 64) -> bytes:
    """A small JPEG file with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    sink = io.BytesIO()
    Image.fromarray(picture(seed, height, width)).save(sink, "JPEG", exif=exif)
    return sink.getvalue()


def write(root: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below ``root``; returns it."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def make_photos(
    root: Path, counts: Mapping[str, int], height: int = 48, width: int = 64, seed: int = 0
) -> Path:
    """A folder of JPEG and PNG files, so many in each subfolder; no two are the same."""
    for folder, count in counts.items():
        for number in range(count):
            seed += 1
            name, data = (
                (f"{number:05d}.png", png(seed, height, width))
                if number % 5 == 0
                else (f"{number:05d}.jpg", jpeg(seed, height, width))
            )
            write(root, {f"{folder}/{name}": data})
    return root
