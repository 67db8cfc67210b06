"""Folders of photographs for the benchmarks, of any size; no two files are equal."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import cv2
import numpy as np
import simplejpeg

from shardmill.infra.codecs import encode_jpeg
from tests.samples.images.photos import jpeg

REPOSITORY = Path(__file__).parents[3]
PHOTOGRAPHS = REPOSITORY.parent / "shared" / "data" / "clothing"
PHOTO_HEIGHT, PHOTO_WIDTH = 533, 400
SMALL_HEIGHT, SMALL_WIDTH = 48, 64
_QUALITY, _LARGE_QUALITY = 90, 88
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


def make_photographs(target: Path, count: int, source: Path | None, megapixels: int = 0) -> Path:
    """Fill a folder with ``count`` photographs, in one subfolder for each class.

    The photographs of ``source`` come first, unchanged; then their mirror images, then both upside down.
    These are other pictures to any hash and cost a codec the same. After four rounds the files repeat with a
    number appended, so that contents still differ.

    Args:
        target: the folder.
        count: how many photographs.
        source: a folder of photographs; None makes them up.
        megapixels: size of each photograph, put together from enlarged ones (24 of them, repeated); 0: as is.
    """
    files = sorted(source.rglob("*.jpg")) if source else []
    if megapixels:
        target.mkdir(parents=True)
        with multiprocessing.get_context("spawn").Pool() as pool:
            numbers = range(min(count, _LARGE_ONES))
            made = pool.starmap(_make_large, [(files, number, megapixels, target) for number in numbers])
        for number in range(_LARGE_ONES, count):
            first = made[number % _LARGE_ONES]
            copy = first.with_name(f"{number:06d}.jpg")
            copy.write_bytes(first.read_bytes() + number.to_bytes(4, "little"))
        return target
    tasks = [
        (files[number % len(files)] if files else None, number, len(files), target) for number in range(count)
    ]
    for folder in {_place(*task).parent for task in tasks}:
        folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool() as pool:
        pool.starmap(_make, tasks, chunksize=64)
    return target


_ENLARGED, _GRAIN = 4, 2.5  # times; deviation of the noise (grey levels)
_LARGE_ONES = 24


def _make_large(files: list[Path], number: int, megapixels: int, target: Path) -> Path:
    """Write a photograph with as much detail and grain as a phone's: a file of 12 megapixels has 1.7 MB."""
    generator = np.random.default_rng(number)
    height = round((megapixels * 0.75e6) ** 0.5) & ~15
    width = height * 4 // 3
    whole = np.empty((height, width, 3), np.uint8)
    rows, columns = PHOTO_HEIGHT * _ENLARGED, PHOTO_WIDTH * _ENLARGED
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            seed = int(generator.integers(1 << 30))
            data = files[seed % len(files)].read_bytes() if files else jpeg(seed, PHOTO_HEIGHT, PHOTO_WIDTH)
            tile = cv2.resize(simplejpeg.decode_jpeg(data), (columns, rows), interpolation=cv2.INTER_LANCZOS4)
            tile = cv2.addWeighted(tile, 1.6, cv2.GaussianBlur(tile, (0, 0), 0.6 * _ENLARGED), -0.6, 0)
            grain = generator.normal(0, _GRAIN, (rows, columns, 1))
            part = np.clip(tile + grain, 0, 255)[: height - top, : width - left]
            whole[top : top + rows, left : left + columns] = part
    place = target / ("even", "odd")[number % 2] / f"{number:06d}.jpg"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(encode_jpeg(whole, _LARGE_QUALITY))
    return place


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
