"""Decode JPEGs of every colour space to upright pixels in sRGB, with libjpeg-turbo.

simplejpeg brings its own libjpeg-turbo. It refuses unusual samplings, such as 3×1. The system's libturbojpeg
decodes those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

import numpy as np
import simplejpeg
from PIL import Image

from shardmill.infra.codecs.formats import (
    DecodedImage,
    ImageRejected,
    Pixels,
    SourceFacts,
    Wanted,
    apply_orientation,
)
from shardmill.infra.codecs.jpeg.header import JpegHeader, check_header, read_header
from shardmill.infra.codecs.jpeg.segments import (
    EOI,
    cut_behind_scans,
    without_metadata,
    without_padding,
    without_stray_bytes,
)
from shardmill.infra.codecs.jpeg.turbojpeg import decode_pixels, library

# Parts of the libraries' messages.
_ENDS_EARLY, _UNUSUAL_SAMPLING = "premature end", "subsampling"
_STRAY = re.compile(r"(\d+) extraneous bytes before marker 0x(\w\w)")
_MOST_STRAY = 20  # decodings of a file to leave stray bytes out
_UNSUPPORTED = ("Unsupported color conversion", "Unsupported JPEG process", "not implemented")


def decode_jpeg(data: bytes, wanted: Wanted) -> DecodedImage:
    """Decode a JPEG.

    Raises:
        ImageRejected: the file is damaged, too large, or of a kind that is not read.
    """
    header = read_header(data)
    check_header(header, wanted.max_pixels)
    if header.color_space == "other":
        raise ImageRejected("unsupported", f"a JPEG of {header.components} components")
    mode = header.mode
    conversion, note = header.conversion(wanted.hdr)
    # libjpeg-turbo converts no colours of the lossless process.
    as_stored = conversion is not None or mode == "CMYK" or header.lossless
    if as_stored:
        colorspace = {"L": "GRAY", "CMYK": "CMYK"}.get(mode, "RGB")
    else:
        colorspace = "GRAY" if wanted.channels == 1 else "RGB"
    pixels, salvaged = _pixels(data, header, colorspace, wanted.allow_truncated)
    if as_stored:
        image = _image(pixels, mode)
        image = (conversion.apply(image) if conversion is not None else image).convert("RGB")
        grey = wanted.channels == 1
        pixels = np.asarray(image.convert("L"))[:, :, np.newaxis] if grey else np.asarray(image)
    source = SourceFacts(
        "jpeg",
        header.source_color,
        header.height,
        header.width,
        header.orientation,
        icc_profile=conversion.description if conversion is not None else None,
        salvaged=salvaged,
        note=note,
    )
    return DecodedImage(apply_orientation(pixels, header.orientation), source)


def decode_jpeg_small(data: bytes, side: int) -> Pixels:
    """Decode a JPEG scaled down, which takes less time than decoding it whole.

    Args:
        data: a JPEG in sRGB and upright, as shards hold them.
        side: neither side becomes shorter than this, unless it was before (pixels).

    Returns:
        uint8 [H, W, 3].

    Raises:
        ImageRejected: the file is damaged.
    """
    try:
        return cast(Pixels, simplejpeg.decode_jpeg(data, colorspace="RGB", min_height=side, min_width=side))
    except ValueError as error:
        raise ImageRejected("corrupt", f"not a sound JPEG: {error}") from error


def is_readable_in_training(data: bytes) -> bool:
    """Tell whether simplejpeg, which reads records in training, decodes a JPEG without a warning."""
    try:
        simplejpeg.decode_jpeg(data)
    except ValueError:
        return False
    return True


def _image(pixels: Pixels, mode: str) -> Image.Image:
    if mode == "CMYK":
        # Adobe's programs brought CMYK into JPEG and store the inks inverted; all readers assume it.
        return Image.frombytes("CMYK", pixels.shape[1::-1], (255 - pixels).tobytes())
    return Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels)


def _pixels(data: bytes, header: JpegHeader, colorspace: str, allow_truncated: bool) -> tuple[Pixels, bool]:
    """Decode a whole picture, or if allowed the part that a truncated file has.

    libjpeg-turbo only warns of truncated or damaged data. Strict decoding stops at its first warning.

    Returns:
        The pixels, and whether they were salvaged from a truncated file.
    """
    problem = _ENDS_EARLY
    for candidate in _candidates(data, header) if header.complete else ():
        try:
            return _decoded(candidate, header, colorspace), False
        except ValueError as error:
            problem = str(error)
        whole = _without_stray_bytes(candidate, problem, header, colorspace)
        if whole is not None:
            return whole, False
    if any(kind in problem for kind in _UNSUPPORTED):
        raise ImageRejected("unsupported", f"a kind of JPEG that is not read: {problem}")
    if _ENDS_EARLY not in problem.lower():
        raise ImageRejected("corrupt", f"not a sound JPEG: {problem}")
    if not allow_truncated:
        missing = "last rows" if header.complete else "last scans, so its details or colours,"
        raise ImageRejected("truncated", f"the JPEG ends early: its {missing} are missing")
    try:
        return _decoded(data, header, colorspace, strict=False), True
    except ValueError as error:
        raise ImageRejected("truncated", f"the JPEG ends so early that nothing is left: {error}") from error


def _candidates(data: bytes, header: JpegHeader) -> Iterator[bytes]:
    """Yield the file, then the same picture without parts in which damage does no harm."""
    yield data
    clean = without_metadata(data) or data
    if clean != data:
        yield clean
    unpadded = without_padding(clean)
    if unpadded != clean:
        yield unpadded
    # A picture of one pass may lack its end mark. The last scan of a progressive one might not be whole.
    if not header.progressive or data.endswith(EOI) or clean.endswith(EOI):
        cut = cut_behind_scans(clean, header.scans)
        if cut is not None and cut != clean:
            yield cut


def _without_stray_bytes(data: bytes, problem: str, header: JpegHeader, colorspace: str) -> Pixels | None:
    """Decode a picture without the bytes behind a scan that the decoder did not use.

    Args:
        data: the file.
        problem: warning of the decoder.
        header: facts of the file's header.
        colorspace: colour space of the pixels.

    Returns:
        None if the decoder warns of anything else.
    """
    tries = _MOST_STRAY
    while (stray := _STRAY.search(problem)) is not None:
        for shorter in without_stray_bytes(data, int(stray[1]), int(stray[2], 16)):
            tries -= 1
            try:
                return _decoded(shorter, header, colorspace)
            except ValueError as error:
                shorter_said = str(error)
            if tries == 0:
                return None
            if shorter_said != problem and _STRAY.search(shorter_said):
                data, problem = shorter, shorter_said
                break
        else:
            return None
    return None


def _decoded(data: bytes, header: JpegHeader, colorspace: str, strict: bool = True) -> Pixels:
    try:
        return cast(Pixels, simplejpeg.decode_jpeg(data, colorspace=colorspace, strict=strict))
    except ValueError as error:
        if _UNUSUAL_SAMPLING not in str(error):
            raise
    if library() is None:
        raise ImageRejected(
            "unsupported",
            "a JPEG whose channels are sampled in an unusual way; to read it, install libturbojpeg "
            "(Debian: libturbojpeg0), and prepare again",
        )
    return decode_pixels(data, (header.height, header.width), colorspace, strict)
