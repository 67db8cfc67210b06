"""Samples of NumPy files, DICOM, pages and bands, and pixels without data: against numpy, tifffile, GDAL."""

from __future__ import annotations

import contextlib
import io
import itertools
import warnings
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.deep import decode_deep
from shardmill.infra.codecs.prepare import prepare_image
from shardmill.infra.codecs.samples import DeepWanted
from shardmill.infra.preparation import Preparation
from tests.samples.images.dicoms import dicom, slice_of

RANDOM = np.random.default_rng(11)
FIVE = RANDOM.integers(0, 4096, (5, 31, 42)).astype(np.uint16)
RGB = RANDOM.integers(0, 256, (31, 42, 3)).astype(np.uint8)


def deep(data: bytes, depth: Any = "keep", channels: Any = "keep", **how: Any) -> npt.NDArray[Any]:
    return decode_deep(data, DeepWanted(depth, channels, 1 << 22, (255, 255, 255), **how)).pixels


def refused(data: bytes, depth: Any = "keep", channels: Any = "keep", **how: Any) -> tuple[str, str]:
    with pytest.raises(ImageRejected) as caught:
        deep(data, depth, channels, **how)
    return caught.value.reason, caught.value.message


def npy(values: npt.NDArray[Any]) -> bytes:
    sink = io.BytesIO()
    np.save(sink, values)
    return sink.getvalue()


def npz(**arrays: npt.NDArray[Any]) -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    return sink.getvalue()


def tiff(values: npt.NDArray[Any], **how: Any) -> bytes:
    sink = io.BytesIO()
    tifffile.imwrite(sink, values, **how)
    return sink.getvalue()


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", "<f2", "<f4", ">f8", "<i2", "<u4", "?"])
@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 1), (9, 7, 3), (9, 7, 6)])
def test_numpy_files(dtype: str, shape: tuple[int, ...]) -> None:
    values = RANDOM.integers(0, 2 if dtype == "?" else 200, shape).astype(dtype)
    wanted = {"u1": np.uint8, "?": np.uint8, "<u2": np.uint16, ">u2": np.uint16}.get(dtype, np.float32)
    for data in (npy(values), npz(image=values), npy(np.asfortranarray(values))):
        found = deep(data)
        assert found.dtype == wanted
        np.testing.assert_array_equal(found, values.reshape(9, 7, -1).astype(wanted))
        np.testing.assert_array_equal(deep(data, "float32"), values.reshape(9, 7, -1).astype(np.float32))


def test_numpy_files_in_8_and_16_bits() -> None:
    np.testing.assert_array_equal(codecs.decode(npy(RGB)).pixels, RGB)
    assert codecs.decode(npy(RGB)).source.color == "RGB"
    np.testing.assert_array_equal(codecs.decode(npy(FIVE[0] * 16)).pixels[:, :, 1], FIVE[0] * 16 >> 8)
    shades = RANDOM.random((9, 7)).astype(np.float32)
    np.testing.assert_array_equal(deep(npy(shades), 16)[:, :, 0], np.rint(shades.astype(np.float64) * 65535))
    numbers = (shades * 900 - 300).astype(np.float32)
    windowed = deep(npy(numbers), 8, window=(0.0, 200.0))[:, :, 0]
    np.testing.assert_allclose(windowed, 255 * np.clip((numbers + 100) / 200, 0, 1), atol=0.51)
    assert refused(npy(numbers), 8)[0] == "unsupported"


class Pickled:
    """An object whose unpickling would be noticed."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("it was unpickled",)


def test_refused_numpy_files() -> None:
    sink = io.BytesIO()
    np.save(sink, np.array([[Pickled()]], object), allow_pickle=True)
    assert "never unpickled" in refused(sink.getvalue())[1]
    assert "complex" in refused(npy(np.zeros((4, 4), complex)))[1]
    assert "channels seem to come first" in refused(npy(FIVE))[1]
    assert "--source-kind arrays" in refused(npy(np.zeros((2, 4, 4, 3), np.uint8)))[1]
    assert "of 2 arrays (a, b)" in refused(npz(a=RGB, b=RGB))[1]
    assert refused(npy(np.full((4, 4), np.nan, np.float32)))[0] == "not_finite"
    assert refused(npy(RGB)[:-1])[0] == "truncated"
    for data in (npy(RGB), npz(a=RGB)):
        for _ in range(60):
            damaged = bytearray(data[: RANDOM.integers(8, len(data))])
            damaged[RANDOM.integers(6, len(damaged))] = RANDOM.integers(256)
            with contextlib.suppress(ImageRejected):  # most are refused, some can be read
                assert deep(bytes(damaged)).ndim == 3


def test_a_numpy_file_with_damaged_lzma_is_refused() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", npy(RGB))
    damaged = bytearray(sink.getvalue())
    damaged[200:210] = bytes(10)
    assert refused(bytes(damaged))[0] == "corrupt"


def test_pages_as_channels() -> None:
    data = tiff(FIVE, photometric="minisblack")
    np.testing.assert_array_equal(deep(data, pages="channels"), np.moveaxis(FIVE, 0, 2))
    np.testing.assert_array_equal(deep(data, bands=(3, 1), pages="channels"), FIVE[[2, 0]].transpose(1, 2, 0))
    np.testing.assert_array_equal(deep(data), FIVE[0, :, :, np.newaxis])
    shades = np.rint(FIVE.astype(np.float64) / 65535 * 255).transpose(1, 2, 0)
    assert np.abs(deep(data, 8, pages="channels") - shades).max() <= 1, "the high byte of 16 bits"
    frames = np.stack([slice_of(0, 0), slice_of(0, 1)])
    stack = dicom(frames, BitsStored=12, RescaleIntercept="-1024", RescaleSlope="1")
    np.testing.assert_array_equal(deep(stack, pages="channels"), frames.transpose(1, 2, 0) - np.float32(1024))
    reason, words = refused(stack)
    assert (reason, "image.pages" in words) == ("unsupported", True)
    sink = io.BytesIO()
    with tifffile.TiffWriter(sink) as file:
        file.write(FIVE[0], photometric="minisblack")
        file.write(FIVE[0, :9], photometric="minisblack")
    assert (
        "its pages differ: 42×31 grey 16-bit, 42×9 grey 16-bit"
        in refused(sink.getvalue(), pages="channels")[1]
    )


def test_bands() -> None:
    data = tiff(np.moveaxis(FIVE, 0, 2), photometric="minisblack", planarconfig="contig")
    np.testing.assert_array_equal(deep(data, bands=(5, 2, 2)), FIVE[[4, 1, 1]].transpose(1, 2, 0))
    np.testing.assert_array_equal(deep(data, 16, 3, bands=(2,)), FIVE[[1, 1, 1]].transpose(1, 2, 0))
    assert refused(data, bands=(6,)) == ("channels", "it has 5 channels, and image.bands names 6")


def test_dicom_values() -> None:
    stored = slice_of(3, 1)
    units = deep(
        dicom(
            stored,
            BitsStored=12,
            RescaleIntercept="-1024",
            RescaleSlope="1",
            WindowCenter="1",
            WindowWidth="2",
        )
    )
    assert units.dtype == np.float32
    np.testing.assert_array_equal(units[:, :, 0], stored.astype(np.float32) - 1024)
    plain = deep(dicom(stored, BitsStored=12))
    assert plain.dtype == np.uint16
    np.testing.assert_array_equal(plain[:, :, 0], stored)
    turned = deep(dicom(stored, BitsStored=12, PhotometricInterpretation="MONOCHROME1"))
    np.testing.assert_array_equal(turned[:, :, 0], 4095 - stored)
    windowed = deep(dicom(stored, BitsStored=12, WindowCenter="1000.5", WindowWidth="401"), 16)[:, :, 0]
    np.testing.assert_allclose(windowed, 65535 * np.clip((stored - 800.0) / 400, 0, 1), atol=0.51)
    np.testing.assert_array_equal(deep(dicom(RGB)), RGB)
    half = deep(dicom(stored, BitsStored=12, RescaleSlope="0.5"), "float32")
    np.testing.assert_array_equal(half[:, :, 0], stored.astype(np.float32) / 2)


def geotiff(values: npt.NDArray[Any], nodata: float | None) -> tuple[bytes, npt.NDArray[np.bool_]]:
    """Return a file of GDAL, and where it says that all bands have data."""
    rasterio = pytest.importorskip("rasterio", reason="GDAL is missing: pixels without data are NOT compared")
    count, height, width = values.shape
    with warnings.catch_warnings(), rasterio.MemoryFile() as memory:
        warnings.simplefilter("ignore")
        with memory.open(
            driver="GTiff", height=height, width=width, count=count, dtype=values.dtype.name, nodata=nodata,
            photometric="MINISBLACK",
        ) as file:  # fmt: skip
            file.write(values)
        with memory.open() as file:
            return bytes(memory.getbuffer()), (file.read_masks() != 0).all(axis=0)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("nodata", [0, 7, np.nan, None])
def test_pixels_without_data(dtype: str, nodata: float | None) -> None:
    values = RANDOM.integers(0, 12, (3, 9, 11)).astype(dtype)
    if nodata is not None and np.isnan(nodata):
        if dtype != "float32":
            pytest.skip("whole numbers have no NaN")
        values[values == 3] = np.nan
    data, valid = geotiff(values, nodata)
    white = {"uint8": 255, "uint16": 65535, "float32": 1}[dtype]
    filled = np.where(valid, values, 0).transpose(1, 2, 0)
    masked = deep(data, no_data="mask")
    np.testing.assert_array_equal(masked[:, :, :3], filled)
    np.testing.assert_array_equal(masked[:, :, 3], valid * white)
    assert masked.dtype == dtype
    np.testing.assert_array_equal(deep(data, no_data=11.0), np.where(valid, values, 11).transpose(1, 2, 0))
    assert deep(data, "keep", 4, no_data="mask").shape == (9, 11, 4)
    assert "set that to 4" in refused(data, "keep", 6, no_data="mask")[1]
    if dtype != "float32":
        assert "is no value of its type" in refused(data, no_data=-1.5)[1]


def test_a_stored_image_of_chosen_bands() -> None:
    data = npy(np.dstack([RGB, RGB[:, :, :2]]))
    how = Preparation(bands=(3, 2, 1), encoding="png", resize="none")
    stored = prepare_image(data, how)
    assert (stored.samples.dtype, stored.samples.channels, stored.source.format) == ("uint8", 3, "numpy")
    np.testing.assert_array_equal(codecs.decode(stored.image).pixels, RGB[:, :, ::-1])
    five = Preparation(depth="keep", channels="keep", resize="none", pages="channels")
    stored = prepare_image(tiff(FIVE, photometric="minisblack"), five)
    assert (stored.samples.dtype, stored.samples.channels, stored.source.color) == (
        "uint16", 5, "5 pages, grey 16-bit",
    )  # fmt: skip


def test_a_window_for_all_files_of_a_data_set() -> None:
    how = Preparation(window=(1000.0, 400.0), resize="none", encoding="png", channels=1)
    wanted = 255 * np.clip((slice_of(1, 1) - 1000.0) / 400 + 0.5, 0, 1)
    signed = slice_of(1, 1).astype(np.int16)
    for data in (
        dicom(signed),
        npy(signed),
        tiff(signed, photometric="minisblack"),
        npy(signed.astype(np.float32)),
    ):
        stored = prepare_image(data, how)
        assert stored.samples.channels == 1
        found = codecs.decode(stored.image, 1).pixels[:, :, 0]
        np.testing.assert_allclose(found, wanted, atol=0.51)


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        *itertools.product(["WEBP", "GIF"], ["L", "RGB", "RGBA", "P"]),
        *itertools.product(["BMP", "AVIF", "JPEG2000"], ["L", "RGB"]),
        *[("AVIF", "RGBA"), ("JPEG2000", "RGBA"), ("BMP", "P"), ("TIFF", "P")],
    ],
)
@pytest.mark.parametrize(
    "kept", [{"channels": "keep"}, {"depth": "keep"}, {"depth": "keep", "channels": "keep"}], ids=str
)
def test_kept_samples_of_common_files_are_stored_as_common_and_decoded_once(
    form: str, mode: str, kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (40, 56, 4), dtype=np.uint8)
    picture = Image.fromarray(pixels, "RGBA").convert(mode)
    sink, exif = io.BytesIO(), Image.Exif()
    exif[274] = 6
    picture.save(sink, form, **({"exif": exif.tobytes()} if form in ("WEBP", "AVIF") else {}))
    opened, decode = list[object](), Image.open
    monkeypatch.setattr(Image, "open", lambda *args, **how: opened.append(args) or decode(*args, **how))
    how = {"size": 20, "encoding": "png", "background": "#102030"}
    found = prepare_image(sink.getvalue(), Preparation.model_validate(how | kept))
    assert len(opened) <= 1
    wanted = prepare_image(
        sink.getvalue(), Preparation.model_validate(how | {"channels": found.samples.channels})
    )
    assert found.samples == wanted.samples
    assert found.image == wanted.image
    assert (found.source, found.upright) == (wanted.source, wanted.upright)
    assert found.measures.pixel_mean == wanted.measures.pixel_mean
    assert found.measures.pixel_std == wanted.measures.pixel_std
