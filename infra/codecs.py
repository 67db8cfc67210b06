"""Image bytes to arrays and back: the bindings of the image libraries, used by both floors above.

JPEG goes through libjpeg-turbo (simplejpeg), everything else through Pillow, area averaging through OpenCV.
All of them release the GIL. Formats are recognised by content, never by name.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
import PIL
import simplejpeg
from PIL import Image, ImageOps, UnidentifiedImageError

from infra.jpeg_segments import without_metadata

Pixels = npt.NDArray[np.uint8]

# Raised with every change here, or in what calls this, that makes other pixels of the same file: work that
# was finished under the old code is then not mixed with new.
REVISION = 1

MAX_PIXELS = 178_956_970  # where Pillow begins to speak of decompression bombs: 512 MiB of RGB

MAX_JPEG_SIDE = 65_500  # libjpeg's own limit; the format's is 65,535

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", "jpeg"),
    (0, b"\x89PNG\r\n\x1a\n", "png"),
    (8, b"WEBP", "webp"),
    (0, b"GIF87a", "gif"),
    (0, b"GIF89a", "gif"),
    (0, b"BM", "bmp"),
    (0, b"II*\x00", "tiff"),
    (0, b"MM\x00*", "tiff"),
    (0, b"\x00\x00\x00\x0cjP  \r\n\x87\n", "jpeg2000"),
    (0, b"\xff\x4f\xff\x51", "jpeg2000"),
    (4, b"ftypavif", "avif"),
)
_PILLOW_FORMATS = {
    "jpeg": "JPEG",
    "png": "PNG",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "jpeg2000": "JPEG2000",
    "avif": "AVIF",
}
_EXIF_ORIENTATION = 0x0112

# Parallelism comes from the jobs above, one image a thread; a pool in each call would only fight it.
cv2.setNumThreads(1)


class ImageRejected(Exception):
    """One image cannot be used. Becomes a quarantine row, never the end of a job.

    Attributes:
        reason: a short code: "empty", "unknown_format", "truncated", "corrupt", "too_many_pixels" or
            "too_long".
        message: what is wrong, for a person.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An upright image.

    Attributes:
        pixels: uint8 [H, W, C], C = 1 (grey) or 3 (RGB), EXIF orientation applied.
        source_format: "jpeg", "png", ...
        source_height, source_width: as stored in the file, before orientation (pixels).
        orientation: the EXIF orientation that was applied, 1 to 8.
    """

    pixels: Pixels
    source_format: str
    source_height: int
    source_width: int
    orientation: int


def codec_builds() -> dict[str, str]:
    """Library -> version of everything that shapes stored pixels. Part of every digest."""
    return {
        "shardmill": str(REVISION),
        "simplejpeg": simplejpeg.__version__,
        "opencv": cv2.__version__,
        "pillow": PIL.__version__,
    }


def sniff(data: bytes) -> str | None:
    """The format of image bytes by their signature, or None where it is none that we read."""
    for offset, signature, name in _SIGNATURES:
        if data[offset : offset + len(signature)] == signature:
            return name
    return None


def decode(data: bytes, channels: int = 3, *, max_pixels: int = MAX_PIXELS) -> DecodedImage:
    """Decode an image of any known format, upright, as grey or RGB.

    Args:
        data: the file's bytes.
        channels: 1 or 3.
        max_pixels: refuse larger images by their header, before anything is decoded.

    Raises:
        ImageRejected: the bytes are no whole image.
    """
    if not data:
        raise ImageRejected("empty", "the file is empty (0 bytes)")
    found = sniff(data)
    if found is None:
        known = ", ".join(dict.fromkeys(_PILLOW_FORMATS.values()))
        raise ImageRejected(
            "unknown_format", f"begins with the bytes {data[:4].hex(' ').upper()}, which is none of {known}"
        )
    if found == "jpeg" and (image := _decode_jpeg(data, channels, max_pixels)) is not None:
        return image
    return _decode_with_pillow(data, found, channels, max_pixels)


def _decode_jpeg(data: bytes, channels: int, max_pixels: int) -> DecodedImage | None:
    """The fast path; None where libjpeg-turbo's RGB conversion does not apply (CMYK, YCCK)."""
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        if colorspace in ("CMYK", "YCCK"):
            return None
        _check_pixels(height, width, max_pixels)
        pixels = _jpeg_pixels(data, channels)
    except ValueError as error:
        # libjpeg-turbo only warns of truncated or damaged data; simplejpeg's strict mode raises the warning.
        clean = without_metadata(data)
        if "premature end" in str(error).lower() or clean is None:
            raise _rejected_jpeg(str(error)) from error
        # The damage may lie in the metadata alone: then the picture without it decodes without a warning.
        try:
            height, width, colorspace, _ = simplejpeg.decode_jpeg_header(clean)
            _check_pixels(height, width, max_pixels)
            pixels = _jpeg_pixels(clean, channels)
        except ValueError:
            raise _rejected_jpeg(str(error)) from error
    orientation = _jpeg_orientation(data)
    return DecodedImage(apply_orientation(pixels, orientation), "jpeg", height, width, orientation)


def _jpeg_pixels(data: bytes, channels: int) -> Pixels:
    return cast(Pixels, simplejpeg.decode_jpeg(data, colorspace="RGB" if channels == 3 else "GRAY"))


def _rejected_jpeg(text: str) -> ImageRejected:
    if "premature end" in text.lower():
        return ImageRejected("truncated", "the JPEG ends early: its last rows are missing")
    return ImageRejected("corrupt", f"not a sound JPEG: {text}")


def _check_pixels(height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise ImageRejected("too_many_pixels", f"{width}×{height}: {_too_many_pixels(max_pixels)}")


def _too_many_pixels(max_pixels: int) -> str:
    return f"its header announces more pixels than are allowed ({max_pixels:,}); nothing was decoded"


def _jpeg_orientation(data: bytes) -> int:
    """EXIF orientation of a JPEG, 1 where there is none. Skips the parser where no EXIF block is in sight."""
    if data.find(b"Exif\x00\x00", 0, 1 << 16) < 0:
        return 1
    try:
        with _no_warnings(), Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            return _orientation_of(image)
    except (OSError, SyntaxError, ValueError):
        return 1  # the pixels were fine; broken metadata is no reason to lose them


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Keep what Pillow remarks about odd metadata to itself: the pixels decide whether an image is sound."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _orientation_of(image: Image.Image) -> int:
    try:
        value: Any = image.getexif().get(_EXIF_ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError):
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def apply_orientation(pixels: Pixels, orientation: int) -> Pixels:
    """Turn pixels upright. EXIF 2.32, tag 274; ``pixels``: uint8 [H, W, C], or [W, H, C] for 5 to 8."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _decode_with_pillow(data: bytes, found: str, channels: int, max_pixels: int) -> DecodedImage:
    mode = "RGB" if channels == 3 else "L"
    try:
        with _no_warnings(), Image.open(io.BytesIO(data), formats=(_PILLOW_FORMATS[found],)) as image:
            width, height = image.size
            _check_pixels(height, width, max_pixels)
            orientation = _orientation_of(image)
            # exif_transpose reads the orientation once more, after load() has read all metadata.
            upright = ImageOps.exif_transpose(image) if orientation != 1 else image
            pixels = np.asarray(_flatten(upright).convert(mode), dtype=np.uint8)
    except ImageRejected:
        raise
    except UnidentifiedImageError as error:
        raise ImageRejected(
            "corrupt", f"has the signature of a {found} file, but a header that is damaged or not supported"
        ) from error
    except Image.DecompressionBombError as error:
        raise ImageRejected("too_many_pixels", _too_many_pixels(max_pixels)) from error
    except Exception as error:  # plugins raise anything on hostile bytes; it becomes a row
        raise _rejected_by_pillow(error, found) from error
    if channels == 1:
        pixels = pixels[:, :, np.newaxis]
    return DecodedImage(np.ascontiguousarray(pixels), found, height, width, orientation)


# What Pillow and the libraries below it say -> what it means.
_MEANINGS = (
    ("decoder error", "its pixel data is damaged, or compressed in a way that is not supported"),
    ("broken data stream", "its pixel data is damaged"),
    ("max_text_chunk", "a text in it expands beyond all measure (a decompression bomb)"),
    ("max_text_memory", "the texts in it expand beyond all measure (a decompression bomb)"),
    ("cannot load this image", "it holds no pixel data"),
)


def _rejected_by_pillow(error: Exception, found: str) -> ImageRejected:
    text = str(error) or type(error).__name__
    lowered = text.lower()
    if "truncated" in lowered or "but only got" in lowered or isinstance(error, EOFError):
        return ImageRejected("truncated", f"the {found} file ends early")
    meaning = next((meaning for said, meaning in _MEANINGS if said in lowered), text)
    return ImageRejected("corrupt", f"not a sound {found} file: {meaning}")


def _flatten(image: Image.Image) -> Image.Image:
    """Alpha composited on white, and 16-bit grey brought to 8 bits."""
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        values = np.asarray(image, dtype=np.int64)
        return Image.fromarray(np.clip(values >> 8, 0, 255).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba)
    return image


def short_side_size(height: int, width: int, short_side: int) -> tuple[int, int]:
    """(height, width) after scaling the shorter side down to ``short_side``; never larger than it was."""
    shorter = min(height, width)
    if shorter <= short_side:
        return height, width
    if height <= width:
        return short_side, max(1, round(width * short_side / height))
    return max(1, round(height * short_side / width)), short_side


def resize_short_side(pixels: Pixels, short_side: int) -> Pixels:
    """Shrink so that the shorter side is ``short_side``, by area averaging (which cannot alias).

    Args:
        pixels: uint8 [H, W, C].
        short_side: pixels; smaller images stay as they are.

    Returns:
        uint8 [h, w, C].
    """
    height, width = short_side_size(pixels.shape[0], pixels.shape[1], short_side)
    if (height, width) == pixels.shape[:2]:
        return pixels
    shrunk = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return cast(Pixels, shrunk.reshape(height, width, pixels.shape[2]))


def encode_jpeg(pixels: Pixels, quality: int) -> bytes:
    """Baseline JPEG, 4:2:0 for colour. ``pixels``: uint8 [H, W, 1 or 3]; ``quality`` 1 to 100.

    Raises:
        ImageRejected: a side is longer than JPEG can hold.
    """
    height, width = pixels.shape[:2]
    if max(height, width) > MAX_JPEG_SIDE:
        raise ImageRejected(
            "too_long", f"stored as {width}×{height}; a JPEG has at most {MAX_JPEG_SIDE:,} pixels a side"
        )
    grey = pixels.shape[2] == 1
    return cast(
        bytes,
        simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels),
            quality=quality,
            colorspace="GRAY" if grey else "RGB",
            colorsubsampling="Gray" if grey else "420",
        ),
    )
