"""Refuse pictures with damage that Pillow does not report, and put its errors into words for a person."""

from __future__ import annotations

from PIL import Image, ImageFile

from shardmill.infra.codecs.formats import FORMATS, ImageRejected
from shardmill.infra.codecs.pillow.run_length_bmp import is_run_length_bmp
from shardmill.infra.codecs.structure.png_chunks import (
    PngFile,
    can_hold_all_rows,
    holds_all_rows,
    is_undamaged,
    last_row_decoded,
)

_MEANINGS = (
    ("decoder error", "its pixel data is damaged, or compressed in a way that is not supported"),
    ("broken data stream", "its pixel data is damaged"),
    ("cannot load this image", "it holds no pixel data"),
    ("unrecognized data stream", "its pixel data is damaged"),
    ("unrecognized image mode", "its kind of pixels is not supported"),
    ("unknown compression", "it is compressed in a way that is not supported"),
)


def ends_early(data: bytes, found: str) -> bool:
    """Tell whether a file lacks its end, for formats whose library does not say so clearly."""
    return found == "bmp" and int.from_bytes(data[2:6], "little") > len(data)


def unidentified(found: str, is_short: bool) -> ImageRejected:
    """Return the rejection of a file of a known format whose header the library refuses."""
    if is_short:
        return ImageRejected("truncated", f"the {FORMATS[found]} file ends early")
    return ImageRejected(
        "corrupt",
        f"has the signature of a {FORMATS[found]} file, but a header that is damaged or not supported",
    )


def rejected_by_library(error: Exception, found: str, is_short: bool) -> ImageRejected:
    """Return the rejection that an error of Pillow stands for.

    Args:
        error: any error that a plugin raised.
        found: the format.
        is_short: the file lacks its end.
    """
    text = str(error) or type(error).__name__
    lowered = text.lower()
    if is_short or "truncated" in lowered or "but only got" in lowered or isinstance(error, EOFError):
        return ImageRejected("truncated", f"the {FORMATS[found]} file ends early")
    if "unsupported" in lowered or "not supported" in lowered:
        return ImageRejected("unsupported", f"a kind of {FORMATS[found]} file that is not read: {text}")
    meaning = next((meaning for said, meaning in _MEANINGS if said in lowered), text)
    return ImageRejected("corrupt", f"not a sound {FORMATS[found]} file: {meaning}")


# Places of the bits of a pixel in a BMP: OS/2's header is shorter than all others.
_OLD_BMP_HEADER_BYTES, _OLD_BMP_BITS_AT, _BMP_BITS_AT = 12, 24, 28
_BMP_COMPRESSION_AT, _BMP_OPACITY_AT, _WITH_MASKS, _SHORTEST_WITH_OPACITY = 30, 66, 3, 56


def check_before_loading(data: bytes, png: PngFile | None, image: Image.Image, salvage: bool) -> None:
    """Check the structure of the file, before memory is taken for the picture.

    Args:
        data: the file.
        png: header and chunks of a PNG, or None for another format.
        image: opened, not loaded.
        salvage: accept a PNG that lacks rows.

    Raises:
        ImageRejected: "truncated", "corrupt" or "unsupported".
    """
    if image.format == "BMP" and not is_run_length_bmp(image):
        _check_bits(data, image.mode)
    if image.format == "GIF":
        _check_covered(image)
    if png is not None and not is_undamaged(png):
        raise ImageRejected("corrupt", "not a sound PNG file: its pixel data does not match its checksums")
    if png is not None and not salvage and not can_hold_all_rows(png):
        raise ImageRejected("truncated", "the PNG file ends early: most rows are missing")


def _check_bits(data: bytes, mode: str) -> None:
    """Check that Pillow will read as many bits a pixel as a BMP has, and its opacity.

    Pillow 12.3 leaves a palette out if it begins with the greys of its own, and then reads 1 bit a pixel (two
    colours) or 8 bits, whatever the file has. It leaves the opacity of pixels of 16 bits out.
    """
    at = _OLD_BMP_BITS_AT if data[14] == _OLD_BMP_HEADER_BYTES else _BMP_BITS_AT
    bits = int.from_bytes(data[at : at + 2], "little")
    if bits != {"1": 1, "L": 8}.get(mode, bits):
        raise ImageRejected("unsupported", f"a BMP of {bits} bits a pixel with these greys; save it as PNG")
    masked = int.from_bytes(data[_BMP_COMPRESSION_AT : _BMP_COMPRESSION_AT + 4], "little") == _WITH_MASKS
    if bits == 16 and masked and data[14] >= _SHORTEST_WITH_OPACITY and any(data[_BMP_OPACITY_AT:][:4]):
        raise ImageRejected("unsupported", "a BMP of 16 bits a pixel with opacity; save it as PNG")


def _check_covered(image: Image.Image) -> None:
    """Refuse a GIF whose first frame leaves a part of the canvas free, without transparency.

    The specification gives this part a background colour. Pillow takes that, libvips black, ImageMagick
    another colour, and browsers show it transparent.
    """
    assert isinstance(image, ImageFile.ImageFile)
    if image.tile and image.tile[0].extents != (0, 0, *image.size) and "transparency" not in image.info:
        raise ImageRejected(
            "unsupported",
            "a GIF whose first frame does not cover its canvas, and nobody can say what colour is around it; "
            "save it as PNG",
        )


def check_after_loading(png: PngFile | None, image: Image.Image, salvage: bool) -> None:
    """Check that a PNG had data for all rows.

    Pillow leaves missing rows zero. So the data is counted only if the row that is decoded last is zero.

    Args:
        png: header and chunks of a PNG, or None for another format.
        image: loaded.
        salvage: accept a picture that lacks rows.

    Raises:
        ImageRejected: "truncated".
    """
    if png is None or salvage:
        return
    row = last_row_decoded(png)
    if row is not None and image.crop((0, row, image.width, row + 1)).getbbox(alpha_only=False) is not None:
        return
    if not holds_all_rows(png):
        raise ImageRejected("truncated", "the PNG file ends early: its last rows are missing")
