"""The same picture without position, device, names, thumbnails or anything else that is not the picture."""

from __future__ import annotations

from infra import jpeg_segments
from infra.codecs import png_chunks, webp_chunks


def _whole_jpeg(data: bytes) -> bytes | None:
    picture = jpeg_segments.without_metadata(data)
    return picture if picture is not None and picture.endswith(jpeg_segments.EOI) else None


_BY_FORMAT = {
    "jpeg": _whole_jpeg,
    "png": png_chunks.without_metadata,
    "webp": webp_chunks.without_metadata,
}


def without_metadata(data: bytes, format_: str) -> bytes | None:
    """The picture's own bytes in a file of their own; not a pixel is decoded.

    The colour profile and the orientation go too: the caller sees to it that neither is needed.

    Args:
        data: a file.
        format_: "jpeg", "png" or "webp"; of any other format nothing can be said.

    Returns:
        The new file, or None where it cannot be made (another format, an animated WebP, a damaged file).
    """
    strip = _BY_FORMAT.get(format_)
    return strip(data) if strip is not None else None
