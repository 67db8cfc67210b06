"""Shared code of the storage formats of tests/benchmarks/formats/compare.py. Runs in every environment.

A ``Format`` says how the stored JPEGs in ``work/jpegs`` are written, and how they are opened. As a program::

    python -m tests.benchmarks.formats.stores.tables write NAME WORK OUT
    python -m tests.benchmarks.formats.stores.tables read NAME WORK OUT [--preload]

Each prints one JSON object. All of it happens in one thread, after a first look at the files, so that they
are in the page cache; *cold* figures are taken after the kernel was told to forget them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import cv2

from tests.benchmarks.inputs.photographs import photographs
from tests.benchmarks.read.peers.reading import BATCH, SIZE, decode, random_window

Example = tuple[bytes, int]  # a stored JPEG and its label

_AT_ONCE = 32  # records that are asked for together
_RECORDS = 2048  # random ones that are measured
_COLD_RECORDS = 512
_IMAGES = 1024  # that are decoded


class Opened(Protocol):
    """An opened format. A record comes as JPEG bytes, or as pixels where those are stored."""

    num_records: int

    def scan(self) -> Iterator[Any]:
        """All records, in the order that is cheapest."""


class Indexed(Opened, Protocol):
    """One that finds any record."""

    def read(self, numbers: Sequence[int]) -> Sequence[Any]:
        """The records with these numbers."""


@dataclass(frozen=True, slots=True)
class Format:
    """A storage format.

    Attributes:
        write: all examples into the folder ``out``, which is there.
        open: what was written; given (work, out).
    """

    write: Callable[[Iterator[Example], Path], None]
    open: Callable[[Path, Path], Any]


def main(formats: dict[str, Format]) -> None:
    """The command line of a module of formats."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("write", "read"))
    parser.add_argument("name", choices=list(formats))
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--preload", action="store_true", help="take all records into memory first")
    told = parser.parse_args()
    chosen = formats[told.name]
    if told.action == "write":
        found = written(chosen, told.work, told.out)
    elif told.preload:
        found = preloaded(chosen, told.work, told.out)
    else:
        found = lazy(chosen, told.work, told.out)
    print(json.dumps(found), flush=True)
    os._exit(0)


def written(chosen: Format, work: Path, out: Path) -> dict[str, Any]:
    """Seconds of writing, with the flush to disk; the JPEGs are in memory."""
    examples = [(Path(path).read_bytes(), label) for path, label in photographs(work / "jpegs")]
    out.mkdir(parents=True)
    os.sync()
    started = time.perf_counter()
    chosen.write(iter(examples), out)
    os.sync()
    return {"num_records": len(examples), "write_seconds": time.perf_counter() - started}


def lazy(chosen: Format, work: Path, out: Path) -> dict[str, Any]:
    """Records are fetched as they are needed."""
    before = own_memory_bytes()
    found: dict[str, Any] = {"first_seconds": first_batch_seconds(chosen, work, out)}
    opened = chosen.open(work, out)
    _scan(opened)  # into the page cache
    found["scan_seconds"] = seconds_of(lambda: _scan(opened))
    if hasattr(opened, "read"):
        found["random_micros"] = _random_micros(opened, _RECORDS)
    found["images_per_second"] = decoding_rate(_endless(opened))
    found["memory_bytes"] = own_memory_bytes() - before
    del opened  # what is mapped cannot be forgotten
    found["cold_scan_seconds"] = seconds_of(lambda: _scan(_cold(chosen, work, out)))
    opened = _cold(chosen, work, out)
    if hasattr(opened, "read"):
        found["cold_random_micros"] = _random_micros(opened, _COLD_RECORDS)
    return found


def _cold(chosen: Format, work: Path, out: Path) -> Any:
    gc.collect()
    forget(work, out)
    return chosen.open(work, out)


def _scan(opened: Opened) -> None:
    for record in opened.scan():
        _owned(record)


def _random_micros(opened: Indexed, count: int) -> float:
    """Microseconds a record."""
    numbers = random.sample(range(opened.num_records), min(count, opened.num_records))

    def fetch() -> None:
        for start in range(0, len(numbers), _AT_ONCE):
            for record in opened.read(numbers[start : start + _AT_ONCE]):
                _owned(record)

    return seconds_of(fetch) / len(numbers) * 1e6


def preloaded(chosen: Format, work: Path, out: Path) -> dict[str, Any]:
    """All records are taken into memory first."""
    before = own_memory_bytes()
    records: list[Any] = []

    def load() -> None:
        records.extend(_owned(record) for record in chosen.open(work, out).scan())

    found: dict[str, Any] = {"preload_seconds": seconds_of(load)}
    found["preloaded_images_per_second"] = decoding_rate(random.choice(records) for _ in iter(int, 1))
    found["preloaded_memory_bytes"] = own_memory_bytes() - before
    return found


def first_batch_seconds(chosen: Format, work: Path, out: Path) -> float:
    """From opening to the first decoded batch."""

    def first() -> None:
        records = _endless(chosen.open(work, out))
        for _ in range(BATCH):
            example(next(records))

    return seconds_of(first)


def decoding_rate(records: Iterator[Any]) -> float:
    """Examples per second of one thread."""
    taken = [0.0]
    started = time.perf_counter()
    for _ in range(_IMAGES):
        taken[0] += example(next(records))[0, 0, 0]
    return _IMAGES / (time.perf_counter() - started)


def example(record: Any) -> Any:
    """A random window as uint8 [224, 224, 3]."""
    cv2.setNumThreads(0)
    pixels = decode(record) if isinstance(record, bytes | memoryview) else record
    top, left, height, width = random_window(*pixels.shape[:2])
    return cv2.resize(pixels[top : top + height, left : left + width], (SIZE, SIZE))


def _endless(opened: Any) -> Iterator[Any]:
    """Records in random order, or where there is no such thing in stored order, without end."""
    while True:
        if not hasattr(opened, "read"):
            yield from opened.scan()
            continue
        numbers = random.sample(range(opened.num_records), opened.num_records)
        for start in range(0, len(numbers), _AT_ONCE):
            yield from opened.read(numbers[start : start + _AT_ONCE])


def _owned(record: Any) -> Any:
    """The record in memory of its own, and so read."""
    return bytes(record) if isinstance(record, bytes | memoryview) else record.copy()


def seconds_of(work: Callable[[], Any]) -> float:
    """Return the time that ``work`` takes (seconds)."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def files(folder: Path) -> list[Path]:
    """All files below a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


def forget(work: Path, out: Path) -> None:
    """Have the kernel drop the files from its cache."""
    for path in (path for place in (out, work / "datasets") for path in files(place)):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def own_memory_bytes() -> int:
    """Memory of this process that is no file's; the page cache under mapped files is free to go."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    found = next(line for line in lines if line.startswith("Anonymous:"))
    return int(found.split()[1]) << 10
