"""Turn errors of Pillow and the libraries below it into a reason and a sentence for a person."""

from __future__ import annotations

from shardmill.infra.codecs.formats import FORMATS, ImageRejected

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
