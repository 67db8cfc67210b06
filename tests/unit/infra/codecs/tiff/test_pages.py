"""Which page of a TIFF is its picture: thumbnails, masks and previews of cameras are not."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import pytest
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected, Pixels
from shardmill.infra.codecs.tiff.kinds import LZW, RGB, UINT, Kind
from tests.samples.images.forms import gradient, saved
from tests.samples.images.tiffs import Layout, pages, tiff

KIND = Kind(RGB, (8,), UINT, 3)
NEW_SUBFILE_TYPE, OLD_SUBFILE_TYPE, INNER_DIRECTORIES, DNG_VERSION = 254, 255, 330, 50706
REDUCED, PAGE, MASK = 1, 2, 4


def page(pixels: Pixels, **tags: int):  # type: ignore[no-untyped-def]
    numbers = {"kind": NEW_SUBFILE_TYPE, "old_kind": OLD_SUBFILE_TYPE}
    return KIND, pixels, Layout(rows=64, tags={numbers[name]: (4, [tags[name]]) for name in tags}), None


SMALL, LARGE = gradient(8, 12), gradient(32, 48)


@pytest.mark.parametrize(
    "first", [{"kind": REDUCED}, {"kind": MASK}, {"old_kind": 2}, {"kind": REDUCED | PAGE}]
)
def test_a_thumbnail_or_mask_in_front_is_passed_over(first: dict[str, int]) -> None:
    data = pages([page(SMALL, **first), page(LARGE), page(SMALL)])
    assert np.array_equal(codecs.decode(data).pixels, LARGE)


@pytest.mark.parametrize("first", [{}, {"kind": 0}, {"kind": PAGE}])
def test_the_first_page_that_is_none_is_the_picture(first: dict[str, int]) -> None:
    data = pages([page(SMALL, **first), page(LARGE), page(LARGE, kind=REDUCED)])
    assert np.array_equal(codecs.decode(data).pixels, SMALL)


def test_a_thumbnail_alone_is_the_picture() -> None:
    assert np.array_equal(codecs.decode(pages([page(SMALL, kind=REDUCED)])).pixels, SMALL)


def with_inner(first: Pixels, inner: Pixels, first_kind: int = 0, inner_kind: int = 0) -> bytes:
    """A TIFF whose first directory points to an inner one, and to no next page."""
    data = bytearray(pages([page(first, kind=first_kind), page(inner, kind=inner_kind)]))
    start = int.from_bytes(data[4:8], "little")
    count = int.from_bytes(data[start : start + 2], "little")
    link = start + 2 + 12 * count
    place = int.from_bytes(data[link : link + 4], "little")
    entries = [bytes(data[at : at + 12]) for at in range(start + 2, link, 12)]
    entries.append(np.array([INNER_DIRECTORIES, 4], "<u2").tobytes() + np.array([1, place], "<u4").tobytes())
    directory = (
        len(entries).to_bytes(2, "little") + b"".join(sorted(entries, key=lambda e: e[1::-1])) + bytes(4)
    )
    data[4:8] = len(data).to_bytes(4, "little")
    return bytes(data) + directory


def test_a_preview_of_a_camera_is_not_the_picture() -> None:
    for first_kind in (0, REDUCED):
        with pytest.raises(ImageRejected, match="camera raw") as caught:
            codecs.decode(with_inner(SMALL, LARGE, first_kind))
        assert caught.value.reason == "unsupported"


def test_smaller_versions_within_are_not_the_picture() -> None:
    for inner_kind in (0, REDUCED):
        assert np.array_equal(codecs.decode(with_inner(LARGE, SMALL, 0, inner_kind)).pixels, LARGE)


def test_a_digital_negative_is_camera_raw() -> None:
    layout = Layout(rows=64, tags={DNG_VERSION: (1, [1, 4, 0, 0])})
    with pytest.raises(ImageRejected, match=r"camera raw.*export it") as caught:
        codecs.decode(tiff(KIND, LARGE, layout))
    assert caught.value.reason == "unsupported"


def test_a_raw_file_of_canon_is_told_by_its_mark() -> None:
    data = tiff(KIND, LARGE, Layout(rows=64, directory_first=True))
    directory = bytearray(data[8:])
    count = int.from_bytes(directory[:2], "little")
    for entry in range(2, 2 + 12 * count, 12):  # of which those that do not fit point 8 bytes further
        tag, kind, number, value = struct.unpack_from("<HHII", directory, entry)
        if tag == 273 or number * {3: 2, 4: 4}[kind] > 4:
            struct.pack_into("<I", directory, entry + 8, value + 8)
    moved = data[:4] + (16).to_bytes(4, "little") + b"\0" * 8 + bytes(directory)
    assert np.array_equal(codecs.decode(moved).pixels, LARGE)
    with pytest.raises(ImageRejected, match="camera raw"):
        codecs.decode(moved[:8] + b"CR\x02\0" + moved[12:])


def test_pixels_that_look_like_the_mark_are_no_raw_file() -> None:
    pixels = np.frombuffer(b"CR\x02\0" * 12, np.uint8).reshape(4, 4, 3)
    assert np.array_equal(codecs.decode(tiff(KIND, pixels)).pixels, pixels)


def test_a_directory_that_points_to_itself_ends_the_search() -> None:
    data = bytearray(pages([page(SMALL, kind=REDUCED)]))
    start = int.from_bytes(data[4:8], "little")
    link = start + 2 + 12 * int.from_bytes(data[start : start + 2], "little")
    data[link : link + 4] = data[4:8]
    assert np.array_equal(codecs.decode(bytes(data)).pixels, SMALL)


def test_a_file_that_ends_within_its_strips_is_salvaged_strip_by_strip() -> None:
    kind = dataclasses.replace(KIND, compression=LZW)
    data = tiff(kind, LARGE, Layout(rows=4, directory_first=True))
    cut = data[: len(data) - 300]
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(cut)
    assert caught.value.reason == "truncated"
    salvaged = codecs.decode(cut, allow_truncated=True)
    assert salvaged.source.salvaged
    assert np.array_equal(salvaged.pixels[:16], LARGE[:16])
    assert not salvaged.pixels[-1, -1].any()


def test_pillow_and_libtiff_write_what_is_read() -> None:
    for options in ({"compression": "jpeg"}, {"compression": "tiff_lzw"}, {"big_tiff": True}):
        data = saved(Image.fromarray(LARGE), "TIFF", **options)
        assert np.abs(codecs.decode(data).pixels.astype(int) - LARGE).max() < 40
