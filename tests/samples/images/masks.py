"""Images with masks: colored shapes, and which class each pixel shows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shardmill.infra.codecs.formats import apply_orientation

CLASSES = ("ground", "disc", "box")
COLORS = np.array([(40, 60, 40), (220, 40, 40), (40, 80, 220), (250, 250, 250)], np.uint8)
IGNORED = 255
UNDOING = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}  # the orientation that undoes another


def painted(seed: int, height: int = 96, width: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [H, W, 3] and uint8 [H, W]: a disc and a box on ground, and a strip that is no class."""
    rng = np.random.default_rng(seed)
    numbers = np.zeros((height, width), np.uint8)
    y, x = np.ogrid[:height, :width]
    centre = rng.integers(height // 4, height // 2), rng.integers(width // 4, width // 2)
    radius = rng.integers(height // 6, height // 4)
    numbers[(y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2] = 1
    if seed % 3:
        top, left = rng.integers(height // 2, height - 20), rng.integers(width // 2, width - 20)
        numbers[top : top + 18, left : left + 18] = 2
    numbers[:4] = IGNORED
    noise = rng.integers(-20, 20, (height, width, 1))
    pixels = COLORS[np.minimum(numbers, 3)].astype(np.int64) + noise
    return np.clip(pixels, 0, 255).astype(np.uint8), numbers


def encoded(pixels: np.ndarray, format_: str = "PNG", **options: Any) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, format_, **options)
    return sink.getvalue()


def add_pair(
    root: Path, name: str, seed: int, orientation: int = 1, *, mask: np.ndarray | None = None
) -> None:
    """Write images/NAME.png, which its orientation turns, and masks/NAME.png of the pixels in that file."""
    pixels, numbers = painted(seed)
    exif = Image.Exif()
    exif[0x0112] = orientation
    undone = UNDOING[orientation]
    stored = apply_orientation(pixels, undone)
    numbers = apply_orientation(numbers[:, :, np.newaxis], undone)[:, :, 0] if mask is None else mask
    for folder, data in (("images", encoded(stored, exif=exif)), ("masks", encoded(numbers))):
        path = root / folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def make_masked(root: Path, count: int = 12) -> Path:
    """Write a source of images and masks of every orientation."""
    for number in range(count):
        add_pair(root, f"{number:03}", number, number % 8 + 1)
    return root


def config(**more: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "masks", "masks": {"classes": list(CLASSES)}},
        "image": {"encoding": "png", "size": 48},
        "groups": {"near_duplicates": False},
        "failure_budget": 0.5,
        "shards": {"num_shards": 2},
        **more,
    }
