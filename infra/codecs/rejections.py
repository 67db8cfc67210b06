"""What Pillow and the libraries below it say of a file, as a reason and a sentence for a person."""

from __future__ import annotations

import struct
from typing import Any

from PIL import Image

from infra.codecs.formats import FORMATS, ImageRejected

# (offsets, lengths in bytes) of a TIFF's strips and tiles
_STRIPS = ((273, 279), (324, 325))
_END_OF_CODESTREAM = b"\xff\xd9"

_MEANINGS = (
    ("decoder error", "its pixel data is damaged, or compressed in a way that is not supported"),
    ("broken data stream", "its pixel data is damaged"),
    ("cannot load this image", "it holds no pixel data"),
    ("unrecognized data stream", "its pixel data is damaged"),
    ("unrecognized image mode", "its kind of pixels is not supported"),
    ("unknown compression", "it is compressed in a way that is not supported"),
)


def ends_early(data: bytes, found: str, image: Image.Image) -> bool:
    """Whether a file lacks its end, of which its library says nothing clear."""
    if found == "jpeg2000":
        return data.rstrip(b"\x00")[-2:] != _END_OF_CODESTREAM and _END_OF_CODESTREAM not in data[-4096:]
    return found == "tiff" and _strips_beyond(dict(getattr(image, "tag_v2", {})), len(data))


def _strips_beyond(tags: dict[int, Any], size_bytes: int) -> bool:
    for offsets, lengths in _STRIPS:
        places, counts = tags.get(offsets, ()), tags.get(lengths, ())
        if not isinstance(places, tuple) or not isinstance(counts, tuple):
            continue
        for place, count in zip(places, counts, strict=False):
            if isinstance(place, int) and isinstance(count, int) and place + count > size_bytes:
                return True
    return False


def directory_ends_early(data: bytes) -> bool:
    """Whether the first directory of a TIFF (which often is the last thing in it) is not all there."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\x00", b"\x00+")
    try:
        (place,) = struct.unpack_from(f"{order}Q" if big else f"{order}I", data, 8 if big else 4)
        if place > len(data):
            return True
        (count,) = struct.unpack_from(f"{order}Q" if big else f"{order}H", data, place)
    except struct.error:
        return True
    return bool(place + count * (20 if big else 12) > len(data))


def unidentified(found: str, is_short: bool) -> ImageRejected:
    """What a file is whose format is known, and whose header its library does not take."""
    if is_short:
        return ImageRejected("truncated", f"the {FORMATS[found]} file ends early")
    return ImageRejected(
        "corrupt",
        f"has the signature of a {FORMATS[found]} file, but a header that is damaged or not supported",
    )


def rejected_by_library(error: Exception, found: str, is_short: bool) -> ImageRejected:
    """What an error of Pillow means.

    Args:
        error: anything that a plugin raised.
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
