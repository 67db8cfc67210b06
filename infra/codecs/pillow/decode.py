"""Decode every format except JPEG, JPEG 2000 and TIFF through Pillow: the first frame, upright.

Images become 8 bits, sRGB and opaque. Masks keep the samples of the file. Pillow's settings for the whole
process are made safe for several threads that decode at once.

HEIF (HEIC, from telephones) is read with libheif, if the extra ``heif`` is installed. It is an extra because
its HEVC decoder is under the LGPL, and is the least hardened of the image libraries.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from PIL import AvifImagePlugin, Image, ImageFile, UnidentifiedImageError

from shardmill.infra.codecs.color.stated import Stated, Statement, of_nclx
from shardmill.infra.codecs.formats import (
    ImageRejected,
    Picture,
    Pixels,
    SourceFacts,
    Wanted,
    apply_orientation,
    band_rows,
    check_pixels,
    too_many_pixels,
)
from shardmill.infra.codecs.pillow.deep import deep_samples
from shardmill.infra.codecs.pillow.faults import (
    check_after_loading,
    check_before_loading,
    ends_early,
    is_run_length_bmp,
    load_run_length_bmp,
    rejected_by_library,
    unidentified,
)
from shardmill.infra.codecs.pillow.raster import AnyPixels, flatten, is_flattened_whole, samples_of
from shardmill.infra.codecs.structure.boxes import ends_within_a_box, items_are_text
from shardmill.infra.codecs.structure.exif import orientation_in
from shardmill.infra.codecs.structure.heif_colors import heif_colors
from shardmill.infra.codecs.structure.png_chunks import PngFile, read_png
from shardmill.infra.codecs.structure.webp_chunks import read_webp
from shardmill.infra.extras import install

# Jobs decode one image a thread.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


class _Tolerance(threading.local):
    """A value of Pillow's LOAD_TRUNCATED_IMAGES for each thread. Pillow only asks whether it is true."""

    on = False

    def __bool__(self) -> bool:
        return self.on


_tolerance = _Tolerance()
# If other code in the process sets this to True or False, truncated files can no longer be salvaged.
ImageFile.LOAD_TRUNCATED_IMAGES = cast(bool, _tolerance)


@contextlib.contextmanager
def _truncation_tolerated() -> Iterator[None]:
    """Let Pillow decode a part of files that end early, in this thread."""
    _tolerance.on = True
    try:
        yield
    finally:
        _tolerance.on = False


class _Silence:
    """Ignore the warnings of the process as long as any thread asks for it.

    ``warnings.catch_warnings`` alone restores the filters that it found. If two threads overlap, the second
    one would restore the silence of the first, for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._caught = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._wanted == 0:
                self._caught.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
            self._wanted += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                self._caught.close()


# Pillow warns of odd metadata. Whether an image can be used is decided by its pixels.
no_warnings = _Silence()


_COLORS = {
    "1": "grey 1-bit", "L": "grey", "I;16": "grey 16-bit", "LA": "grey+alpha",
    "P": "palette", "RGBX": "RGB", "RGBa": "RGBA",
}  # fmt: skip
# From files of these formats that end early Pillow can decode a part. The others give all or nothing.
_SALVAGEABLE = frozenset({"png", "gif", "bmp"})


@dataclass(frozen=True, slots=True)
class _Source:
    """The facts about a file before its pixels are decoded.

    Attributes:
        data: the file; for PNG and WebP only the picture's own chunks.
        height: rows as stored (pixels); 0 if only the library can tell.
        width: columns as stored (pixels); 0 if only the library can tell.
        color: SourceFacts.color; "" if only the library can tell.
        orientation: from EXIF, 1 to 8.
        stated: what the file states of its colours, what wins first.
        bits: bits of a sample.
        png: header and chunks of a PNG, or None for another format.
        upright: the library turns the picture itself.
        note: what of its colours is left out, "" for nothing.
        short: the file is shorter than it says; the missing part may not belong to the picture.
    """

    data: bytes
    height: int = 0
    width: int = 0
    color: str = ""
    orientation: int = 1
    stated: tuple[Statement, ...] = ()
    bits: int = 8
    png: PngFile | None = None
    upright: bool = False
    note: str = ""
    short: bool = False


# Of a picture: the colours that were converted, whether it had alpha, and a note (``SourceFacts``).
_NOTHING_CONVERTED: tuple[str | None, bool, str] = (None, False, "")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What is known of a picture that Pillow decoded.

    Attributes:
        source: facts about its file, all of them.
        found: the format of the file.
        short: the file lacks its end.
        salvaged: the picture may lack a part.
    """

    source: _Source
    found: str
    short: bool
    salvaged: bool

    @property
    def orientation(self) -> int:
        """The EXIF orientation that is to be applied."""
        return 1 if self.source.upright else self.source.orientation

    def facts(self, icc_profile: str | None = None, had_alpha: bool = False, note: str = "") -> SourceFacts:
        """Return the facts about the file."""
        source = self.source
        return SourceFacts(
            self.found, source.color, source.height, source.width, source.orientation, icc_profile,
            had_alpha, self.salvaged, note=note,
        )  # fmt: skip


def decode_with_pillow(data: bytes, found: str, wanted: Wanted) -> Picture:
    """Decode an image of the format ``found``, which is a key of ``formats.FORMATS``.

    Raises:
        ImageRejected: the file is damaged, too large, or of a kind that is not read.
    """
    source = _read_source(data, found, wanted.max_pixels)
    try:
        image, loaded = _load(source, found, wanted.max_pixels)
    except ImageRejected as rejected:
        if not wanted.allow_truncated or rejected.reason != "truncated" or found not in _SALVAGEABLE:
            raise
        with _truncation_tolerated():
            image, loaded = _load(source, found, wanted.max_pixels, salvage=True)
    source, told = loaded.source, _NOTHING_CONVERTED

    def bands() -> Iterator[Pixels]:
        nonlocal told
        whole = is_flattened_whole(image, source.bits, source.stated)
        for band in _cut(image, image.height if whole else band_rows(image.width)):

            def deep(mode: str, band: Image.Image = band) -> AnyPixels | None:
                return deep_samples(band, mode, source.data, found, source.bits, source.png)

            with _faults_as_rejections(found, loaded.short, wanted.max_pixels):
                flat = flatten(band, source.stated, source.bits, source.png, wanted, deep)
                pixels = flat.pixels(wanted.channels)
            note = ", ".join(filter(None, (source.note, flat.note)))
            told = flat.icc_profile, told[1] or flat.had_alpha, note
            yield pixels

    # Only the bands refer to the image, so it goes with the last one.
    return Picture(image.height, image.width, loaded.orientation, bands(), lambda: loaded.facts(*told))


def _cut(image: Image.Image, rows: int) -> Iterator[Image.Image]:
    """Yield an image in bands of so many rows."""
    if rows >= image.height:
        yield image
        return
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


def decode_samples(data: bytes, found: str, max_pixels: int, in_color: bool) -> tuple[AnyPixels, SourceFacts]:
    """Decode the samples of a file, upright and otherwise as they are in it.

    Args:
        data: the file.
        found: its format, a key of ``formats.FORMATS``.
        max_pixels: largest picture that is decoded.
        in_color: return the colours of every file, also of one with a palette.

    Returns:
        uint8 or uint16 [H, W, 1], or uint8 [H, W, 3] of a file in colour, and the facts about the file.

    Raises:
        ImageRejected: the file is damaged, too large, or of a kind that is not read.
    """
    image, loaded = _load(_read_source(data, found, max_pixels), found, max_pixels)
    with _faults_as_rejections(found, loaded.short, max_pixels):
        samples = samples_of(image, loaded.source.bits, in_color)
    return apply_orientation(samples, loaded.orientation), loaded.facts()


def _read_source(data: bytes, found: str, max_pixels: int) -> _Source:
    """Read the structure of a file, and refuse one with more pixels than are decoded."""
    if found == "png":
        png = read_png(data)
        check_pixels(png.height, png.width, max_pixels)
        return _Source(
            png.picture, png.height, png.width, png.source_color, png.orientation, png.stated,
            bits=png.bit_depth, png=png,
        )  # fmt: skip
    if found == "webp":
        webp = read_webp(data)
        check_pixels(webp.height, webp.width, max_pixels)
        return _Source(
            webp.picture, webp.height, webp.width, webp.source_color, webp.orientation,
            () if webp.icc is None else (webp.icc,), short=not webp.whole,
        )  # fmt: skip
    if found in ("avif", "heif"):
        colors = heif_colors(data)
        return _Source(
            data, stated=of_nclx(colors.nclx), bits=colors.bits, short=ends_within_a_box(data),
            note="gain map left out" if colors.has_gain_map else "",
        )  # fmt: skip
    return _Source(data)


def _load(source: _Source, found: str, max_pixels: int, salvage: bool = False) -> tuple[Image.Image, _Loaded]:
    """Decode a picture. Its file may lack its end if it is salvaged."""
    with _faults_as_rejections(found, source.short, max_pixels), _open(source.data, found) as image:
        source = _completed(source, image, found)
        check_pixels(source.height, source.width, max_pixels)
        short = source.short or ends_early(source.data, found)
        with _faults_as_rejections(found, short, max_pixels):
            check_before_loading(source.data, source.png, image, salvage)
            if is_run_length_bmp(image):
                loaded = load_run_length_bmp(image, source.data, salvage)
            else:
                image.load()
                loaded = image
            check_after_loading(source.png, loaded, salvage)
        return loaded, _Loaded(source, found, short, salvage)


@contextlib.contextmanager
def _faults_as_rejections(found: str, short: bool, max_pixels: int) -> Iterator[None]:
    """Turn what Pillow raises into the rejection of a file, and silence its warnings."""
    try:
        with no_warnings:
            yield
    except ImageRejected:
        raise
    except UnidentifiedImageError as error:
        raise unidentified(found, short) from error
    except Image.DecompressionBombError as error:
        allowed = min(max_pixels, 2 * (Image.MAX_IMAGE_PIXELS or max_pixels))
        raise ImageRejected("too_many_pixels", too_many_pixels(allowed)) from error
    except MemoryError:
        raise  # the machine or the image may be to blame; the supervisor finds out
    except Exception as error:  # plugins raise anything on hostile bytes; the error becomes a row
        raise rejected_by_library(error, found, short) from error


def _open(data: bytes, found: str) -> Image.Image:
    if found == "heif":
        return _open_heif(data)
    return Image.open(io.BytesIO(data), formats=(found.upper(),))


def _open_heif(data: bytes) -> Image.Image:
    """Open the primary image. Loading it will decode it and turn it as the container says.

    Raises:
        ImageRejected: no library for HEIF is installed ("unsupported"), or it would crash ("corrupt").
    """
    try:
        binding: Any = importlib.import_module("pi_heif")
    except ImportError as error:
        raise ImageRejected(
            "unsupported", f"a HEIF image; to read these, {install('heif')}, and prepare again"
        ) from error
    if not items_are_text(data):
        # pi-heif 1.4 follows a null pointer if the type of an item is no text.
        raise ImageRejected("corrupt", "not a sound HEIF file: the types and names of its items are no text")
    binding.options.DECODE_THREADS = 1  # jobs decode one image a thread
    for unused in ("THUMBNAILS", "DEPTH_IMAGES", "AUX_IMAGES"):
        setattr(binding.options, unused, False)
    return cast(Image.Image, binding.as_plugin.HeifImageFile(io.BytesIO(data)))


def _completed(source: _Source, image: Image.Image, found: str) -> _Source:
    """Return ``source`` with the facts that only the opened image can tell."""
    if source.height:
        return source
    width, height = image.size
    icc, stated = image.info.get("icc_profile"), source.stated
    if isinstance(icc, bytes):
        # A profile wins over code points (ISO/IEC 23000-22, 7.3.6.4), but there is none of HDR.
        is_hdr = any(isinstance(one, Stated) and one.is_hdr for one in stated)
        stated = (*stated, icc) if is_hdr else (icc, *stated)
    return replace(
        source, height=height, width=width, color=_COLORS.get(image.mode, image.mode),
        orientation=orientation_in(image.info.get("exif") or b"") if found == "avif" else 1,
        stated=stated,
        upright=found == "heif",  # the container's own transformations replace EXIF's orientation
    )  # fmt: skip
