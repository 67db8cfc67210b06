"""Compiled code finds a record sound only where the Python code does, with the same image."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra import record_batch
from infra.errors import CorruptDataError
from infra.examples import ImageRecord, build_example, parse_example
from infra.record_batch import CheckedImage, Promised, check_records, read_records
from infra.records import frame, masked_crc32c, unframe

if not record_batch.is_compiled():
    pytest.skip(
        "infra/record_batch.c is not compiled here (no C compiler at install)", allow_module_level=True
    )

RECORDS = [
    ImageRecord("0123456789abcdef", bytes(range(256)) * 3, 7, "a class", 480, 640, 3),
    ImageRecord("fedcba9876543210", b"", 0, "", 1, 1, 1),
    ImageRecord("00ff00ff00ff00ff", os.urandom(5001), 2**31 - 1, "\udcff", 2**31 - 1, 65535, 3),
]


def promise(records: list[ImageRecord]) -> Promised:
    numbers = [
        np.array([getattr(each, name) for each in records], np.int32) for name in ("label", "height", "width")
    ]
    return Promised(np.array([each.id for each in records], "S16"), *numbers)


def check(framed: bytes, record: ImageRecord) -> CheckedImage | None:
    return check_records([framed], promise([record]))[0]


def test_sound_records_have_their_images(tmp_path: Path) -> None:
    framed = [frame(build_example(record)) for record in RECORDS]
    path = tmp_path / "shard"
    path.write_bytes(b"before" + b"".join(framed))
    offsets = np.cumsum([6, *map(len, framed[:-1])]).astype(np.int64)
    lengths = np.array([len(each) for each in framed], np.int64)
    with path.open("rb") as stream:
        read = read_records([stream.fileno()] * 3, offsets, lengths, promise(RECORDS))
        for found in (read, check_records(framed, promise(RECORDS))):
            assert [(bytes(each.image), each.channels) for each in found if each is not None] == [
                (record.image, record.channels) for record in RECORDS
            ]
        # One at a time past the end: short, and said to be.
        assert read_records([stream.fileno()], offsets[2:] + 1, lengths[2:], promise(RECORDS[2:])) == [None]
    assert read_records([stream_closed()], offsets[:1], lengths[:1], promise(RECORDS[:1])) == [None]


def stream_closed() -> int:
    """A descriptor that nobody has open."""
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    return reader


@pytest.mark.parametrize(
    "other",
    [
        ImageRecord("0123456789abcdee", b"", 7, "", 480, 640, 3),
        ImageRecord("0123456789abcdef", b"", 8, "", 480, 640, 3),
        ImageRecord("0123456789abcdef", b"", 7, "", 481, 640, 3),
        ImageRecord("0123456789abcdef", b"", 7, "", 480, 639, 3),
    ],
)
def test_a_record_that_the_index_does_not_promise_is_not_sound(other: ImageRecord) -> None:
    framed = frame(build_example(RECORDS[0]))
    assert check(framed, RECORDS[0]) is not None
    assert check(framed, other) is None


def test_every_flipped_bit_is_found() -> None:
    record = ImageRecord("0123456789abcdef", b"not many bytes", 7, "a", 480, 640, 3)
    framed = frame(build_example(record))
    for bit in range(8 * len(framed)):
        damaged = bytearray(framed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert check(bytes(damaged), record) is None
    for end in range(len(framed)):
        assert check(framed[:end], record) is None
    assert check(framed + b"\0", record) is None


@given(data=st.data())
@settings(max_examples=600, deadline=None)
def test_under_right_checksums_it_accepts_only_what_the_parser_accepts(data: st.DataObject) -> None:
    """Payloads that are no examples, or strange ones, with checksums that fit: as a defect may write them."""
    record = ImageRecord("0123456789abcdef", b"some bytes", 7, "a", 480, 640, 3)
    payload = bytearray(build_example(record))
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(payload) - 1))
        if data.draw(st.booleans()):
            payload[place] = data.draw(st.integers(0, 255))
        else:
            payload[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    framed = frame(bytes(payload))
    found = check(framed, record)
    try:
        parsed = parse_example(unframe(framed))
    except CorruptDataError:
        assert found is None
        return
    if found is not None:
        assert (bytes(found.image), found.channels) == (parsed.image, parsed.channels)
        assert (parsed.id, parsed.label, parsed.height, parsed.width) == ("0123456789abcdef", 7, 480, 640)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 1000, 4099])
def test_checksums_are_those_of_the_library(size: int) -> None:
    """Through the only place they show: a frame is sound under its own checksum and under no other."""
    record = ImageRecord("0123456789abcdef", os.urandom(size), 7, "a", 480, 640, 3)
    payload = build_example(record)
    framed = frame(payload)
    assert framed[-4:] == masked_crc32c(payload).to_bytes(4, "little")
    assert check(framed, record) is not None
    assert check(framed[:-4] + ((masked_crc32c(payload) + 1) % 2**32).to_bytes(4, "little"), record) is None
