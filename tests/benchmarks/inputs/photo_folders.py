"""Folders of photographs for the benchmarks, of any size; no two files are equal."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import simplejpeg

from shardmill.infra.codecs import encode_jpeg
from tests.samples.images.photos import jpeg

REPOSITORY = Path(__file__).parents[3]
PHOTOGRAPHS = REPOSITORY.parent / "shared" / "data" / "clothing"
PHOTO_HEIGHT, PHOTO_WIDTH = 533, 400
SMALL_HEIGHT, SMALL_WIDTH = 48, 64
_QUALITY = 90
_VIEWS = 4  # as it is, mirrored, upside down, both


def make_small_photographs(target: Path, first: int, count: int) -> Path:
    """Add ``count`` small photographs to a folder, numbered from ``first``; no two look alike."""
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
    """Fill a folder with ``count`` photographs, in one subfolder for each class.

    The photographs of ``source`` come first, unchanged; then their mirror images, then both upside down.
    These are other pictures to any hash and cost a codec the same. After four rounds the files repeat with a
    number appended, so that contents still differ.

    Args:
        target: the folder.
        count: how many photographs.
        source: a folder of photographs; None makes them up.
    """
    files = sorted(source.rglob("*.jpg")) if source else []
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
        copy, view = divmod(number // round_length, _VIEWS)
        if view:
            pixels = simplejpeg.decode_jpeg(data, colorspace="RGB")
            pixels = pixels[:, ::-1] if view % 2 else pixels
            pixels = pixels[::-1] if view >= 2 else pixels
            data = encode_jpeg(np.ascontiguousarray(pixels), _QUALITY)
        if copy:
            data += copy.to_bytes(4, "little")
    _place(file, number, round_length, target).write_bytes(data)
