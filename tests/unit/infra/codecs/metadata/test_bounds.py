"""Hostile metadata cost work in proportion to the file, however often they point at the same bytes."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shardmill.infra.codecs.metadata.c2pa import declared_source_types
from shardmill.infra.codecs.metadata.heif_items import exif_and_xmp
from shardmill.infra.codecs.metadata.reading import read_metadata
from shardmill.infra.codecs.metadata.text import iso_time
from shardmill.infra.codecs.metadata.xmp import CREATOR, read_xmp
from tests.samples.images.described import box, image_file, jumbf, xmp


class CountedBytes(bytes):
    """Bytes that count how many of them were copied."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        self.copied += len(part) if isinstance(part, bytes) else 1
        return part


@contextmanager
def few_cpu_seconds() -> Iterator[None]:
    """Allow a hundred times what the work takes, and a tenth of what its square would."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 5


@pytest.mark.parametrize("text", ["2021-03-04T05:06:07{}x", "2021-03-04T05:06:07{}Z{}x"])
def test_a_time_with_a_long_run_of_spaces(text: str) -> None:
    with few_cpu_seconds():
        iso_time(text.replace("{}", " " * 500_000))
    assert iso_time(f"  {' ' * 500_000}2021-03-04T05:06:07 Z  ") == "2021-03-04T05:06:07+00:00"


def test_a_long_text_of_xmp_with_many_tags() -> None:
    packet = xmp({"dc:creator": " \n" * 200_000 + "<a/>" * 120_000 + "Bo"})
    with few_cpu_seconds():
        assert read_xmp(packet) == {CREATOR: "Bo"}


def test_an_unknown_encoding_of_xmp_tells_nothing() -> None:
    packet = b'<?xml version="1.0" encoding="x-unknown"?>' + xmp({"dc:creator": "Bo"})
    assert CREATOR not in read_xmp(packet)
    assert read_metadata(image_file("jpeg", packet=packet)).creator is None


def test_overlapping_values_of_content_credentials() -> None:
    actions = b"\x71digitalSourceType\x79\xff\xff" * 2_000
    assertion = jumbf(b"cbor\x00\x11", b"c2pa.actions", box(b"cbor", actions))
    manifest = jumbf(b"c2ma\x00\x11", b"m", jumbf(b"c2as\x00\x11", b"c2pa.assertions", assertion))
    found = declared_source_types(jumbf(b"c2pa\x00\x11", b"c2pa", manifest))
    assert 0 < sum(map(len, found)) <= 50_000


def test_descriptions_that_reach_beyond_their_boxes() -> None:
    described = struct.pack(">I4s16sB", 0x7FFF_FFFF, b"jumd", b"c2as", 3)
    manifest = jumbf(b"c2ma\x00\x11", b"m", box(b"jumb", described) * 900)
    store = CountedBytes(jumbf(b"c2pa\x00\x11", b"c2pa", manifest * 10))
    assert declared_source_types(store) == []
    assert store.copied < 10 * len(store)


def heif(extents: list[tuple[int, int]], repeated: int) -> CountedBytes:
    """A file with an item of EXIF, whose place is told again and again; extents: places and sizes."""
    item = box(b"infe", b"\x02\x00\x00\x00" + struct.pack(">HH4s", 1, 0, b"Exif"))
    places = struct.pack(">HHH", 1, 0, len(extents))
    places += b"".join(struct.pack(">II", *extent) for extent in extents)
    information = box(b"iinf", bytes(4) + struct.pack(">H", 1) + item)
    located = box(b"iloc", bytes(4) + b"\x44\x00" + struct.pack(">H", repeated) + places * repeated)
    brand = box(b"ftyp", b"avif" + bytes(4) + b"avif")
    return CountedBytes(brand + box(b"meta", bytes(4) + information + located) + bytes(100_000))


@pytest.mark.parametrize(
    ("extents", "is_found"),
    [([(0, 100_000)], True), ([(0, 50_000), (0, 50_000)], True), ([(0, 100_000)] * 100, False)],
)
def test_an_item_of_heif_that_is_told_again_and_again(extents: list[tuple[int, int]], is_found: bool) -> None:
    data = heif(extents, 50)
    tiff, _ = exif_and_xmp(data)
    assert (tiff is not None) is is_found
    assert data.copied < 3 * len(data)


def test_many_damaged_compressed_texts_of_png(monkeypatch: pytest.MonkeyPatch) -> None:
    inflated = []
    original = zlib.decompressobj

    def counted(*options: Any) -> Any:
        inflated.append(options)
        return original(*options)

    monkeypatch.setattr(zlib, "decompressobj", counted)
    content = b"iTXtXML:com.adobe.xmp\x00\x01\x00\x00\x00" + zlib.compress(bytes(2 << 20))
    chunk = struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
    data = image_file("png")
    assert read_metadata(data[:33] + chunk * 50 + data[33:]).creator is None
    assert len(inflated) == 1
