"""TFRecord framing and the gzip container."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.errors import CorruptDataError, NotFoundError
from shardmill.infra.format.records import (
    CONTAINERS,
    Container,
    frame,
    iter_records,
    masked_crc32c,
    pack_record,
    unpack_record,
)
from shardmill.infra.storage.filesystem import Storage

payloads = st.binary(max_size=4096)
containers = st.sampled_from(CONTAINERS)


def test_the_frame_is_tensorflows() -> None:
    # The record of one zero-length payload, as tf.io.TFRecordWriter writes it.
    assert frame(b"").hex() == "00000000000000002903980" + "7d8ea82a2"
    assert struct.unpack("<Q", frame(b"abc")[:8]) == (3,)
    assert frame(b"abc")[12:15] == b"abc"


def test_masked_crc_of_known_text() -> None:
    # CRC-32C("123456789") is 0xE3069283 (RFC 3720, appendix B.4).
    crc = 0xE3069283
    assert masked_crc32c(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@given(payload=payloads, container=containers)
def test_a_record_comes_back(payload: bytes, container: Container) -> None:
    stored = pack_record(payload, container)
    assert unpack_record(stored, container) == payload
    assert pack_record(payload, container) == stored


@given(payload=st.binary(min_size=1, max_size=300), container=containers, data=st.data())
def test_a_flipped_bit_never_gives_another_payload(
    payload: bytes, container: Container, data: st.DataObject
) -> None:
    stored = bytearray(pack_record(payload, container))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = unpack_record(bytes(stored), container)
    except CorruptDataError:
        return
    # Only gzip has bits that mean nothing to a reader: its maker, its time, the padding after deflate's end.
    assert container == "gzip"
    assert found == payload


@given(payload=payloads, container=containers, data=st.data())
def test_any_truncation_is_noticed(payload: bytes, container: Container, data: st.DataObject) -> None:
    stored = pack_record(payload, container)
    with pytest.raises(CorruptDataError):
        unpack_record(stored[: data.draw(st.integers(0, len(stored) - 1))], container)


@given(several=st.lists(payloads, max_size=5))
def test_a_gzip_shard_is_standard_gzip(several: list[bytes]) -> None:
    shard = b"".join(pack_record(payload, "gzip") for payload in several)
    assert gzip.decompress(shard) == b"".join(frame(payload) for payload in several)


@pytest.mark.parametrize("container", CONTAINERS)
def test_records_of_a_shard_in_order(tmp_path: Path, container: Container) -> None:
    several = [bytes([number]) * size for number, size in enumerate((0, 1, 10_000, 700_000, 3))]
    stored = [pack_record(payload, container) for payload in several]
    (tmp_path / "shard").write_bytes(b"".join(stored))
    found = list(iter_records(Storage.at(tmp_path), "shard", container))
    assert [payload for _, _, payload in found] == several
    assert [length for _, length, _ in found] == [len(record) for record in stored]
    assert [offset for offset, _, _ in found] == [
        sum(len(record) for record in stored[:number]) for number in range(len(stored))
    ]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_truncated_shard_names_file_and_offset(tmp_path: Path, container: Container, cut: int) -> None:
    first, second = pack_record(b"a" * 50, container), pack_record(b"b" * 50, container)
    (tmp_path / "shard").write_bytes(first + second[: -cut if cut < len(second) else 1])
    with pytest.raises(CorruptDataError, match=rf"shard at byte {len(first)}"):
        list(iter_records(Storage.at(tmp_path), "shard", container))


def test_rubbish_is_no_shard(tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(b"this is not a shard at all, only some text")
    for container in CONTAINERS:
        with pytest.raises(CorruptDataError, match="shard at byte 0"):
            list(iter_records(Storage.at(tmp_path), "shard", container))  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="nowhere"):
        list(iter_records(Storage.at(tmp_path), "nowhere", "none"))


def test_two_members_are_not_one_record() -> None:
    with pytest.raises(CorruptDataError, match="does not end where its index says"):
        unpack_record(pack_record(b"a", "gzip") + pack_record(b"b", "gzip"), "gzip")
    with pytest.raises(CorruptDataError):
        unpack_record(zlib.compress(frame(b"a")), "gzip")
