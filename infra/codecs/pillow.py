"""Every format but plain JPEG, through Pillow."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from infra.codecs.formats import DecodedImage, ImageRejected, check_pixels, too_many_pixels
from infra.codecs.orientation import no_warnings, orientation_of

PILLOW_FORMATS = {
    "jpeg": "JPEG",
    "png": "PNG",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "jpeg2000": "JPEG2000",
    "avif": "AVIF",
}


def decode_with_pillow(data: bytes, found: str, channels: int, max_pixels: int) -> DecodedImage:
    mode = "RGB" if channels == 3 else "L"
    try:
        with no_warnings(), Image.open(io.BytesIO(data), formats=(PILLOW_FORMATS[found],)) as image:
            width, height = image.size
            check_pixels(height, width, max_pixels)
            orientation = orientation_of(image)
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
        raise ImageRejected("too_many_pixels", too_many_pixels(max_pixels)) from error
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
