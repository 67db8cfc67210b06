"""What an image is before its bytes are understood: its format by signature, and why it may be refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

MAX_PIXELS = 178_956_970  # where Pillow begins to speak of decompression bombs: 512 MiB of RGB

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


def sniff(data: bytes) -> str | None:
    """The format of image bytes by their signature, or None where it is none that we read."""
    for offset, signature, name in _SIGNATURES:
        if data[offset : offset + len(signature)] == signature:
            return name
    return None


def check_pixels(height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise ImageRejected("too_many_pixels", f"{width}×{height}: {too_many_pixels(max_pixels)}")


def too_many_pixels(max_pixels: int) -> str:
    return f"its header announces more pixels than are allowed ({max_pixels:,}); nothing was decoded"
