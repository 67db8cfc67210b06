"""Folders of photographs for the benchmarks: as many as asked for, no two alike."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import simplejpeg

from infra.codecs import encode_jpeg
from tests.samples.photos import jpeg

REPOSITORY = Path(__file__).parents[2]
PHOTOGRAPHS = REPOSITORY.parent / "shared" / "data" / "clothing"
PHOTO_HEIGHT, PHOTO_WIDTH = 533, 400
SMALL_HEIGHT, SMALL_WIDTH = 48, 64
_QUALITY = 90


def make_small_photographs(target: Path, first: int, count: int) -> Path:
    """Add ``count`` small photographs to a folder, the numbers from ``first`` on; no two look alike."""
    numbers = range(first, first + count)
    for folder in {_small_place(target, number).parent for number in numbers}:
        folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool() as pool:
        pool.starmap(_make_small, [(target, number) for number in numbers], chunksize=256)
    return target


def _small_place(target: Path, number: int) -> Path:
    return target / f"class-{number % 10}" / f"{number // 1000 % 10:02d}" / f"{number:07d}.jpg"


def _make_small(target: Path, number: int) -> None:
    _small_place(target, number).write_bytes(jpeg(number, SMALL_HEIGHT, SMALL_WIDTH))


def make_photographs(target: Path, count: int, source: Path | None) -> Path:
    """A folder of ``count`` photographs in a subfolder a class.

    Those of ``source`` come first, as they are; then their mirror images, then both again upside down, which
    are other pictures to any hash, and cost a codec the same. Without a source, photographs are made up.
    """
    files = sorted(source.rglob("*.jpg")) if source else []
    if files and count > 4 * len(files):
        raise ValueError(f"{source} has {len(files):,} photographs: enough for {4 * len(files):,}")
    tasks = [
        (files[number % len(files)] if files else None, number, len(files), target) for number in range(count)
    ]
    for folder in {_place(*task).parent for task in tasks}:
        folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool() as pool:
        pool.starmap(_make, tasks, chunksize=64)
    return target


def _place(file: Path | None, number: int, round_length: int, target: Path) -> Path:
    folder = file.parent.name if file else ("even", "odd")[number % 2]
    turn = number // round_length if round_length else 0
    return target / folder / (f"{turn}-{file.stem}.jpg" if file else f"{number:06d}.jpg")


def _make(file: Path | None, number: int, round_length: int, target: Path) -> None:
    if file is None:
        data = jpeg(number, PHOTO_HEIGHT, PHOTO_WIDTH)
    else:
        data = file.read_bytes()
        if turn := number // round_length:
            pixels = simplejpeg.decode_jpeg(data, colorspace="RGB")
            pixels = pixels[:, ::-1] if turn % 2 else pixels
            pixels = pixels[::-1] if turn >= 2 else pixels
            data = encode_jpeg(np.ascontiguousarray(pixels), _QUALITY)
    _place(file, number, round_length, target).write_bytes(data)
