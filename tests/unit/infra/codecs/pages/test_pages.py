"""Pages as files of their own, against tifffile's pages, libtiff's and pydicom's frames."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
import pydicom
import pytest
import tifffile
from pydicom.data import get_testdata_file
from pydicom.pixels import pixel_array

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.pages import InMemory, count_pages
from shardmill.infra.errors import StorageError
from tests.samples.images.dicoms import dicom, slice_of

STACK = np.random.default_rng(3).integers(0, 200, (4, 45, 61, 3)).astype(np.uint8)


def pages(data: bytes) -> int:
    return count_pages(InMemory(data))[1]


def page_of(data: bytes, number: int) -> bytes:
    return InMemory(data).page(number)


def tiff(values: npt.NDArray[Any], **how: Any) -> bytes:
    sink = io.BytesIO()
    tifffile.imwrite(sink, values, **how)
    return sink.getvalue()


GREY = STACK[..., 0]
FORMS: dict[str, tuple[npt.NDArray[Any], dict[str, Any]]] = {
    "bytes": (GREY, {"photometric": "minisblack"}),
    "16 bits": (GREY.astype(np.uint16) * 300, {"photometric": "minisblack", "byteorder": ">"}),
    "BigTIFF, deflate": (GREY, {"photometric": "minisblack", "bigtiff": True, "compression": "deflate"}),
    "tiles, LZW": (GREY, {"photometric": "minisblack", "tile": (16, 32), "compression": "lzw"}),
    "floats": (
        GREY / np.float32(200),
        {"photometric": "minisblack", "predictor": True, "compression": "zstd"},
    ),
    "colours": (STACK, {"photometric": "rgb"}),
    "planes": (np.moveaxis(STACK, 3, 1), {"photometric": "rgb", "planarconfig": "separate"}),
    "JPEG": (STACK, {"photometric": "ycbcr", "compression": "jpeg"}),
    "OME": (GREY.astype(np.uint16), {"ome": True, "metadata": {"axes": "CYX"}}),
    "ImageJ": (GREY.astype(np.uint16), {"imagej": True, "metadata": {"axes": "CYX"}}),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_page_of_a_tiff(form: str) -> None:
    data = tiff(FORMS[form][0], **FORMS[form][1])
    assert pages(data) == len(STACK)
    for number in range(len(STACK)):
        page = page_of(data, number)
        assert page == page_of(data, number)
        with tifffile.TiffFile(io.BytesIO(page)) as found, tifffile.TiffFile(io.BytesIO(data)) as whole:
            assert len(found.pages) == 1
            np.testing.assert_array_equal(found.pages[0].asarray(), whole.pages[number].asarray())
        if form != "JPEG":  # libtiff gives YCbCr its own colours
            np.testing.assert_array_equal(
                imagecodecs.tiff_decode(page), imagecodecs.tiff_decode(data, index=number)
            )
        if form != "floats":
            assert codecs.decode(page).pixels.shape == (45, 61, 3)


def test_thumbnails_are_no_pages() -> None:
    sink = io.BytesIO()
    with tifffile.TiffWriter(sink) as file:
        file.write(GREY[0], photometric="minisblack")
        file.write(GREY[0, ::2, ::2], photometric="minisblack", subfiletype=1)
        file.write(GREY[1], photometric="minisblack")
    assert pages(sink.getvalue()) == 2
    with tifffile.TiffFile(io.BytesIO(page_of(sink.getvalue(), 1))) as found:
        np.testing.assert_array_equal(found.pages[0].asarray(), GREY[1])


def test_a_stack_of_one_directory_is_refused() -> None:
    one = tiff(GREY, photometric="minisblack", metadata={"axes": "ZYX"}, ome=False, truncate=True)
    imagej = tiff(GREY[0], description="ImageJ=1.54\nimages=9\nslices=9\n", metadata=None)
    for data in (one, imagej):
        with pytest.raises(ImageRejected, match="more pages than it has directories") as caught:
            pages(data)
        assert caught.value.reason == "unsupported"


def test_damaged_tiffs_are_refused_or_read() -> None:
    random = np.random.default_rng(5)
    data = tiff(GREY, photometric="minisblack", compression="deflate")
    for _ in range(300):
        damaged = bytearray(data[: random.integers(8, len(data)) if random.random() < 0.3 else None])
        for at in random.integers(4, len(damaged), 3):
            damaged[at] = random.integers(256)
        with contextlib.suppress(ImageRejected):
            count = min(pages(bytes(damaged)), 4)
            found = [page_of(bytes(damaged), number) for number in range(count)]
            assert sum(map(len, found)) <= 5 * 4 * len(data)


@pytest.mark.parametrize(
    "name",
    ["SC_rgb_rle_2frame.dcm", "examples_ybr_color.dcm", "rtdose.dcm", "rtdose_rle.dcm", "rtdose_expb.dcm"],
)
def test_each_frame_of_a_dicom_file(name: str) -> None:
    path = get_testdata_file(name, download=False)
    assert isinstance(path, str), "it comes with pydicom"
    data = Path(path).read_bytes()
    whole = pydicom.dcmread(io.BytesIO(data))
    count = int(whole.NumberOfFrames)
    assert pages(data) == count
    for number in {0, count // 2, count - 1}:
        frame = page_of(data, number)
        assert frame == page_of(data, number)
        found = pydicom.dcmread(io.BytesIO(frame))
        np.testing.assert_array_equal(pixel_array(found), pixel_array(whole, index=number))
        assert "PatientID" not in found
        assert codecs.decode(frame, window="full").source.group is not None


def test_frames_of_one_bit() -> None:
    bits = np.random.default_rng(0).integers(0, 2, (3, 5, 7)).astype(np.uint8)
    packed = np.packbits(bits.reshape(-1), bitorder="little").tobytes()
    data = dicom(
        bits, BitsAllocated=1, BitsStored=1, HighBit=0, PixelData=packed + b"\x00" * (len(packed) % 2)
    )
    for number in range(3):
        pixels = codecs.decode(page_of(data, number), 1).pixels[:, :, 0]
        np.testing.assert_array_equal(pixels, bits[number] * 255)


def test_a_frame_has_its_own_window() -> None:
    file = dicom(np.stack([slice_of(1, 0), slice_of(1, 1)]), BitsStored=12)
    whole = pydicom.dcmread(io.BytesIO(file))
    groups = []
    for center in ("900", "1200"):
        window, group = pydicom.Dataset(), pydicom.Dataset()
        window.WindowCenter, window.WindowWidth, window.VOILUTFunction = center, "400", "LINEAR_EXACT"
        group.FrameVOILUTSequence = [window]
        groups.append(group)
    whole.PerFrameFunctionalGroupsSequence = groups
    sink = io.BytesIO()
    whole.save_as(sink, enforce_file_format=True)
    pixels = codecs.decode(page_of(sink.getvalue(), 1), 1).pixels[:, :, 0]
    wanted = np.clip((slice_of(1, 1) - 1200.0) / 400 + 0.5, 0, 1)
    np.testing.assert_allclose(pixels, 255 * wanted, atol=0.51)


class Unreadable(InMemory):
    """A file whose storage fails while it is read."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise StorageError("the store does not answer", "try again")


def test_a_fault_of_the_storage_is_not_the_fault_of_the_file() -> None:
    with pytest.raises(StorageError):
        count_pages(Unreadable(dicom(STACK[..., 0].astype(np.uint16))))
