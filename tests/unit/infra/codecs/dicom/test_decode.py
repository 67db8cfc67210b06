"""DICOM against GDCM, and against the formulas of the standard."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pydicom
import pytest
from pydantic import ValidationError
from pydicom.data import get_testdata_file
from pydicom.encaps import encapsulate
from pydicom.pixels import apply_voi_lut
from pydicom.uid import MPEG2MPML

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.deep import decode_deep
from shardmill.infra.codecs.samples import DeepWanted
from shardmill.infra.preparation import Preparation, Window
from tests.samples.images.dicoms import data_set, dicom, written

RAMP = np.arange(4096, dtype=np.uint16).reshape(64, 64)
# Files that programs wrote (dcmtk, GDCM, scanners), each of another compression or kind of samples.
REAL = (
    "693_J2KI.dcm", "CT_small.dcm", "ExplVR_BigEnd.dcm", "GDCMJ2K_TextGBR.dcm", "JPEG-lossy.dcm",
    "JPEG2000.dcm", "JPEGLSNearLossless_08.dcm", "JPEGLSNearLossless_16.dcm", "MR_small.dcm",
    "MR_small_RLE.dcm", "MR_small_bigendian.dcm", "MR_small_implicit.dcm", "MR_small_jp2klossless.dcm",
    "MR_small_jpeg_ls_lossless.dcm", "SC_jpeg_no_color_transform.dcm", "SC_jpeg_no_color_transform_2.dcm",
    "SC_rgb_dcmtk_+eb+cr.dcm", "SC_rgb_dcmtk_+eb+cy+n1.dcm", "SC_rgb_dcmtk_+eb+cy+np.dcm",
    "SC_rgb_dcmtk_+eb+cy+s4.dcm", "SC_rgb_gdcm_KY.dcm", "SC_rgb_jls_lossy_line.dcm",
    "SC_rgb_jls_lossy_sample.dcm", "SC_rgb_jpeg_dcmtk.dcm", "SC_rgb_jpeg_gdcm.dcm",
    "SC_rgb_jpeg_lossy_gdcm.dcm", "SC_rgb_rle.dcm", "SC_rgb_small_odd.dcm", "SC_rgb_small_odd_jpeg.dcm",
    "SC_ybr_full_422_uncompressed.dcm", "examples_overlay.dcm", "image_dfl.dcm",
)  # fmt: skip


def real(name: str) -> Path:
    path = get_testdata_file(name, download=False)
    assert isinstance(path, str), "it comes with pydicom"
    return Path(path)


def decode(data: bytes, window: Window = "file", channels: int = 1) -> npt.NDArray[np.uint8]:
    pixels = codecs.decode(data, channels, window=window).pixels
    return pixels[:, :, 0] if channels == 1 else pixels


def by_gdcm(path: Path) -> npt.NDArray[Any]:
    """Stored values, [H, W] or [H, W, 3] in RGB."""
    gdcm = pytest.importorskip("gdcm", reason="GDCM is missing: DICOM is NOT compared")
    reader = gdcm.ImageReader()
    reader.SetFileName(str(path))
    assert reader.Read()
    image = reader.GetImage()
    kind, color = image.GetPixelFormat(), str(image.GetPhotometricInterpretation())
    width, height = image.GetDimensions()[:2]
    letter = "i" if kind.GetPixelRepresentation() else "u"
    flat = np.frombuffer(
        image.GetBuffer().encode("utf-8", "surrogateescape"), f"{letter}{kind.GetBitsAllocated() // 8}"
    )
    if kind.GetSamplesPerPixel() == 1:
        return flat.reshape(height, width)
    planar = image.GetPlanarConfiguration()
    values = (
        np.moveaxis(flat.reshape(3, height, width), 0, 2) if planar else flat.reshape(height, width, 3)
    ).astype(np.float64)
    if not color.strip().startswith("YBR_FULL"):
        return values
    y, blue, red = values[..., 0], values[..., 1] - 128, values[..., 2] - 128
    rgb = np.stack([y + 1.402 * red, y - 0.344136 * blue - 0.714136 * red, y + 1.772 * blue], 2)
    return np.clip(np.rint(rgb), 0, 255)


@pytest.mark.parametrize("name", REAL)
def test_files_of_other_programs(name: str) -> None:
    path = real(name)
    stored = by_gdcm(path).astype(np.float64)
    if stored.ndim == 3:
        np.testing.assert_array_equal(decode(path.read_bytes(), channels=3), stored)
        return
    file = pydicom.dcmread(path, stop_before_pixels=True)
    values = stored * float(file.get("RescaleSlope", 1)) + float(file.get("RescaleIntercept", 0))
    low, high = values.min(), max(values.max(), values.min() + 1)
    wanted = np.rint((values - low) / (high - low) * 255)
    found = decode(path.read_bytes(), ((low + high) / 2, high - low))
    np.testing.assert_allclose(found, wanted, atol=1)  # a value may lie between two levels


@pytest.mark.parametrize("function", [None, "LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_the_window_of_a_file(function: str | None, inverted: bool, signed: bool) -> None:
    stored = (RAMP.astype(np.int16) - 2048) if signed else RAMP
    file = data_set(
        stored, BitsStored=12, RescaleSlope="0.5", RescaleIntercept="-300", WindowCenter=["40", "500"],
        WindowWidth=["400.5", "100"], VOILUTFunction=function,
        PhotometricInterpretation="MONOCHROME1" if inverted else "MONOCHROME2",
    )  # fmt: skip
    shades = apply_voi_lut(stored * 0.5 - 300, file)
    low, high = shades.min(), shades.max()
    if function == "SIGMOID":  # never quite black or white: the range of its result are the values' own
        low, high = (-1324, 723.5) if signed else (-300, 1747.5)
        shades = low + (high - low) / (1 + np.exp(-4 * (stored * 0.5 - 300 - 40) / 400.5))
    wanted = (shades - low) / (high - low)
    found = decode(written(file))
    np.testing.assert_allclose(found, 255 * (1 - wanted if inverted else wanted), atol=0.51)


def test_windows_by_choice() -> None:
    data = dicom(
        RAMP, BitsStored=12, RescaleSlope="1", RescaleIntercept="-1024", WindowCenter="0", WindowWidth="9"
    )
    values = RAMP.astype(np.float64) - 1024
    np.testing.assert_allclose(
        decode(data, (40.0, 400.0)), 255 * np.clip((values - 40) / 400 + 0.5, 0, 1), atol=0.51
    )
    np.testing.assert_allclose(decode(data, "full"), RAMP / 4095 * 255, atol=0.51)
    np.testing.assert_array_equal(
        decode(data), np.where(values > 4, 255, np.where(values < -4, 0, decode(data)))
    )


def test_tables_of_modality_values() -> None:
    table = np.abs(np.arange(256) * 20 - 3000).astype("<u2")  # falls, then rises
    modality = pydicom.Dataset()
    modality.LUTDescriptor, modality.LUTData, modality.ModalityLUTType = [256, 0, 16], table.tobytes(), "US"
    modality["LUTData"].VR = "OW"
    stored = RAMP.astype(np.uint8)
    data = dicom(stored, ModalityLUTSequence=[modality])
    wanted = table[stored].astype(np.float64)
    np.testing.assert_allclose(decode(data), 255 * (wanted - wanted.min()) / np.ptp(wanted), atol=0.51)
    numbers = decode_deep(data, DeepWanted("float32", 1, 1 << 20, (0, 0, 0))).pixels[:, :, 0]
    np.testing.assert_array_equal(numbers, wanted)


def test_without_a_window_all_declared_bits_count() -> None:
    np.testing.assert_allclose(decode(dicom(RAMP, BitsStored=12)), RAMP / 4095 * 255, atol=0.51)
    signed = RAMP.astype(np.int16) - 2048
    np.testing.assert_allclose(decode(dicom(signed, BitsStored=12)), RAMP / 4095 * 255, atol=0.51)
    np.testing.assert_array_equal(decode(dicom(RAMP.astype(np.uint8))), RAMP.astype(np.uint8))
    inverted = dicom(RAMP.astype(np.uint8), PhotometricInterpretation="MONOCHROME1")
    np.testing.assert_array_equal(decode(inverted), 255 - RAMP.astype(np.uint8))


def test_windows_of_single_frames() -> None:
    file = data_set(RAMP, BitsStored=12)
    rescale, window = pydicom.Dataset(), pydicom.Dataset()
    rescale.RescaleSlope, rescale.RescaleIntercept = "2", "10"
    window.WindowCenter, window.WindowWidth, window.VOILUTFunction = "1000", "500", "LINEAR_EXACT"
    shared, of_frame = pydicom.Dataset(), pydicom.Dataset()
    shared.PixelValueTransformationSequence, of_frame.FrameVOILUTSequence = [rescale], [window]
    file.SharedFunctionalGroupsSequence, file.PerFrameFunctionalGroupsSequence = [shared], [of_frame]
    wanted = np.clip((RAMP * 2.0 + 10 - 1000) / 500 + 0.5, 0, 1)
    np.testing.assert_allclose(decode(written(file)), 255 * wanted, atol=0.51)


@pytest.mark.parametrize("is_16_bit", [False, True])
def test_palettes(is_16_bit: bool) -> None:
    colors = np.stack([np.arange(256), 255 - np.arange(256), np.full(256, 7)], 1).astype(np.uint8)
    depth = 16 if is_16_bit else 8
    parts = {}
    for name, channel in zip(("Red", "Green", "Blue"), colors.T, strict=True):
        entries = (channel.astype("<u2") << 8 | 3) if is_16_bit else channel
        parts[f"{name}PaletteColorLookupTableDescriptor"] = [256, 0, depth]
        parts[f"{name}PaletteColorLookupTableData"] = entries.tobytes()
    stored = RAMP.astype(np.uint8)
    data = dicom(stored, PhotometricInterpretation="PALETTE COLOR", **parts)
    np.testing.assert_array_equal(decode(data, channels=3), colors[stored])
    assert codecs.decode(data).source.color == "palette"


def test_colours_of_16_bits() -> None:
    stored = np.stack([RAMP * 16, RAMP[::-1] * 16, RAMP * 0], 2)
    np.testing.assert_allclose(decode(dicom(stored), channels=3), stored / 65535 * 255, atol=0.51)


SIGNED = RAMP.astype(np.int16)
REFUSED = {
    "a window": (dicom(SIGNED), "unsupported", r"signed 16-bit .* image.window=\[CENTRE,WIDTH\]"),
    "32 bits": (dicom(RAMP.astype(np.uint32)), "unsupported", "32-bit .* image.window"),
    "a window of no width": (
        dicom(RAMP, BitsStored=12, WindowCenter="1", WindowWidth="0"), "unsupported", "width 0.*image.window",
    ),
    "an unknown function": (
        dicom(RAMP, BitsStored=12, WindowCenter="1", WindowWidth="2", VOILUTFunction="CURVE"), "unsupported",
        "the function CURVE",
    ),
    "colours": (dicom(RAMP, PhotometricInterpretation="YBR_PARTIAL_420"), "unsupported", "YBR_PARTIAL_420"),
    "frames": (dicom(np.stack([RAMP, RAMP])), "unsupported", "of 2 frames"),
    "no pixels": (dicom(RAMP, PixelData=None), "no_picture", "CT Image Storage"),
    "a slope of 0": (dicom(RAMP, BitsStored=12, RescaleSlope="0"), "corrupt", "slope is 0"),
    "no size": (dicom(RAMP, Rows=None), "corrupt", "Rows"),
    "a short file": (real("MR_truncated.dcm").read_bytes(), "truncated", "ends early"),
    "no preamble": (real("ExplVR_LitEndNoMeta.dcm").read_bytes(), "unknown_format", "without its preamble"),
    "a report": (real("test-SR.dcm").read_bytes(), "no_picture", "Comprehensive SR Storage"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    data, reason, words = REFUSED[case]
    with pytest.raises(ImageRejected, match=words) as caught:
        codecs.decode(data)
    assert caught.value.reason == reason


def test_a_film_is_refused_by_its_transfer_syntax() -> None:
    file = data_set(RAMP, PixelData=encapsulate([b"film"]))
    file["PixelData"].VR = "OB"
    file.file_meta.TransferSyntaxUID = MPEG2MPML
    with pytest.raises(ImageRejected, match=r"compressed as MPEG2 .* \(1\.2\.840\.10008\.1\.2\.4\.100\)"):
        codecs.decode(written(file))


def test_too_large_a_picture_is_not_decoded() -> None:
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(dicom(RAMP), max_pixels=64 * 63)
    assert caught.value.reason == "too_many_pixels"


def test_damaged_files_are_refused_or_read() -> None:
    random = np.random.default_rng(7)
    for name in ("MR_small.dcm", "SC_rgb_jpeg_gdcm.dcm", "MR_small_jp2klossless.dcm"):
        data = real(name).read_bytes()
        for _ in range(40):
            damaged = bytearray(data)
            for at in random.integers(132, len(data), 4):
                damaged[at] = random.integers(256)
            for file in (bytes(damaged), data[: random.integers(1, len(data))]):
                with contextlib.suppress(ImageRejected):
                    assert codecs.decode(file, 1).pixels.dtype == np.uint8


def test_without_its_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dicom(RAMP)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    for loaded in [name for name in sys.modules if name.startswith("shardmill.infra.codecs.dicom")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(ImageRejected, match=r"pip install 'shardmill\[dicom\]'"):
        codecs.decode(data)


def test_a_window_has_a_width() -> None:
    for window in ((40.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))):
        with pytest.raises(ValidationError):
            Preparation(window=window)
