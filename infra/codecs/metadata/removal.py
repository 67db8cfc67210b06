"""Remove position, device, names, thumbnails and everything else that is not the picture from a file."""

from __future__ import annotations

from shardmill.infra.codecs.jpeg import segments as jpeg_segments
from shardmill.infra.codecs.structure import png_chunks, webp_chunks


def _whole_jpeg(data: bytes) -> bytes | None:
    picture = jpeg_segments.without_metadata(data)
    return picture if picture is not None and picture.endswith(jpeg_segments.EOI) else None


_BY_FORMAT = {
    "jpeg": _whole_jpeg,
    "png": png_chunks.without_metadata,
    "webp": webp_chunks.without_metadata,
}


def without_metadata(data: bytes, format_: str) -> bytes | None:
    """Copy the picture's own bytes into a new file, without decoding a pixel.

    The colour profile and the orientation go too. The caller makes sure that neither is needed.

    Args:
        data: a file.
        format_: "jpeg", "png" or "webp"; other formats cannot be handled.

    Returns:
        The new file, or None if it cannot be made (another format, an animated WebP, a damaged file).
    """
    strip = _BY_FORMAT.get(format_)
    return strip(data) if strip is not None else None
