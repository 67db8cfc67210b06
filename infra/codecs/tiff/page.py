"""Find the picture among the pages of a TIFF, and read its tags."""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tifffile

from shardmill.infra.codecs.formats import ImageRejected, band_rows, check_pixels
from shardmill.infra.codecs.tiff.kinds import (
    COMPRESSIONS,
    FAX,
    JPEG,
    OLD_JPEG,
    PALETTE,
    RGB,
    UNASSOCIATED,
    UNCOMPRESSED,
    WEBP,
    YCBCR,
    Kind,
    camera_raw,
)

# It logs what is odd about metadata. What matters of a file becomes the reason of its refusal.
logging.getLogger("tifffile").setLevel(logging.CRITICAL)

_REDUCED, _MASK = 1, 4  # bits of NewSubfileType
_DNG_VERSION = 50706
_CR2_START = b"\x10\x00\x00\x00CR\x02\x00"  # offset of the first directory, and a mark of Canon's
_ORIENTATION, _ICC, _SUBSAMPLING, _INK_SET = 274, 34675, 530, 332
_MAX_SAMPLE, _S_MIN_SAMPLE, _S_MAX_SAMPLE = 281, 340, 341
_COEFFICIENTS, _REFERENCE = 529, 532
_LENGTHS = (279, 325, 514)
_MOST_PAGES = 100  # searched for a picture that is no thumbnail
_MOST_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a TIFF. A tile counts as a strip.

    Attributes:
        number: among the pages of the file, from 0.
        kind: kind of its samples.
        height: height of the picture as stored (pixels).
        width: width of the picture as stored (pixels).
        rows: of a strip; the last strip of a picture may have fewer, the last tile may not.
        columns: width of a strip (pixels).
        tiled: the strips are tiles.
        offsets: place of each strip in the file (bytes).
        lengths: length of each strip as the file says (bytes).
        big_endian: byte order of the samples.
        mirrored: the low bit of each byte comes first.
        orientation: 1 to 8.
        icc: the ICC profile, or None.
        palette: uint16 [3, entries], or None.
        max_sample: MaxSampleValue; 0 if it is not stated.
        declared_range: SMinSampleValue and SMaxSampleValue, or None.
        luma: weights of red, green and blue in luma (YCbCrCoefficients), or none.
        reference: black and white of Y, Cb and Cr (ReferenceBlackWhite), or none.
        decode: decodes a strip of a compression that stands for pixels (JPEG, fax, WebP), by its number.
    """

    number: int
    kind: Kind
    height: int
    width: int
    rows: int
    columns: int
    tiled: bool
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    big_endian: bool
    mirrored: bool
    orientation: int
    icc: bytes | None
    palette: npt.NDArray[np.uint16] | None
    max_sample: int
    declared_range: tuple[float, float] | None
    luma: tuple[float, ...]
    reference: tuple[float, ...]
    decode: Callable[[bytes, int], npt.NDArray[Any]]

    @property
    def across(self) -> int:
        """Strips side by side."""
        return -(-self.width // self.columns)

    @property
    def in_a_plane(self) -> int:
        """Strips that a plane needs; a picture whose samples are stored side by side is one plane."""
        return self.across * -(-self.height // self.rows)

    @property
    def planes(self) -> int:
        """Number of planes."""
        return self.kind.samples if self.kind.in_planes else 1

    @property
    def together(self) -> int:
        """Number of samples of a pixel that are stored side by side."""
        return 1 if self.kind.in_planes else self.kind.samples

    def size_of(self, number: int) -> tuple[int, int, int, int]:
        """Return the top row, left column, rows and columns of a strip (pixels)."""
        down, left = divmod(number % self.in_a_plane, self.across)
        top = down * self.rows
        rows = self.rows if self.tiled else min(self.rows, self.height - top)
        return top, left * self.columns, rows, self.columns


def in_short_strips(page: Page, file_bytes: int) -> Page:
    """Cut the only strip of an uncompressed picture into strips of a few rows, which can be read alone.

    Args:
        page: any page; it is returned as it is if it has more strips, or if its strip does not hold all rows.
        file_bytes: length of the file.
    """
    kind, rows = page.kind, band_rows(page.width)
    if kind.compression != UNCOMPRESSED or kind.photometric == YCBCR or page.tiled or page.in_a_plane > 1:
        return page
    row_bytes = -(-page.width * page.together * kind.bits[0] // 8)
    needed = page.height * row_bytes
    ends = [offset + needed for offset in page.offsets[: page.planes]]
    if len(ends) < page.planes or max(ends) > file_bytes or min(page.lengths, default=needed) < needed:
        return page
    pieces = [(end - needed + top * row_bytes, top) for end in ends for top in range(0, page.height, rows)]
    return replace(
        page,
        rows=rows,
        offsets=tuple(offset for offset, _ in pieces),
        lengths=tuple(min(rows, page.height - top) * row_bytes for _, top in pieces),
    )


def read_page(data: bytes, max_pixels: int) -> Page:
    """Read the tags of the picture: the first page that is neither a thumbnail nor a mask.

    Raises:
        ImageRejected: the directory is damaged or cut off, the picture too large, or the file a camera's.
    """
    if _directory_ends_early(data):
        raise ImageRejected("truncated", "the TIFF file ends early, before its directory")
    try:
        # Closed, or the objects of tifffile, which refer to each other, would keep the file in memory.
        with io.BytesIO(data) as stream:
            file = tifffile.TiffFile(stream, is_lsm=False, is_ndpi=False, is_scanimage=False)
            page = _picture(file, data)
            return _read(page, file.byteorder == ">", max_pixels)
    except ImageRejected:
        raise
    except MemoryError:
        raise
    except Exception as error:  # tifffile raises anything on hostile bytes; the error becomes a row
        raise ImageRejected(
            "corrupt", f"not a sound TIFF file: its directory is damaged ({error})"
        ) from error


def damaged(part: str, error: object) -> ImageRejected:
    """Return the rejection of a file with a damaged part."""
    return ImageRejected("corrupt", f"not a sound TIFF file: {part} is damaged ({error})")


def _directory_ends_early(data: bytes) -> bool:
    """Tell whether the first directory (often the last thing in a file) is cut off."""
    big = data[2:4] in (b"+\x00", b"\x00+")
    order: Literal["little", "big"] = "little" if data[:2] == b"II" else "big"
    first = int.from_bytes(data[8:16] if big else data[4:8], order)
    size, entry = (8, 20) if big else (2, 12)
    if first + size > len(data):
        return True
    return first + size + int.from_bytes(data[first : first + size], order) * entry > len(data)


def _picture(file: Any, data: bytes) -> Any:
    first = file.pages[0]
    if _DNG_VERSION in first.tags or data[4:12] == _CR2_START:
        raise camera_raw("its first page is a preview or what a sensor measured")
    for page in _pages(file):
        if not page.subfiletype & (_REDUCED | _MASK):
            _check_inner_pages(first, page)
            _check_inner_pages(page, page)
            return page
    if first.subifds:
        raise camera_raw("its page is a preview, and the picture lies in an inner directory")
    return first


def _pages(file: Any) -> Iterator[Any]:
    """Yield the pages in their order. In hostile files they may form a circle."""
    for number in range(_MOST_PAGES):
        try:
            yield file.pages[number]
        except IndexError:
            return


def _check_inner_pages(outer: Any, page: Any) -> None:
    """Refuse a page if an inner directory of ``outer`` has a larger picture, as in raw files of cameras."""
    for inner in itertools.islice(outer.pages or () if outer.subifds else (), _MOST_PAGES):
        larger = inner.imagewidth * inner.imagelength > page.imagewidth * page.imagelength
        if larger and not inner.subfiletype & (_REDUCED | _MASK):
            raise camera_raw("a picture in an inner directory is larger than its pages")


def _read(page: Any, big_endian: bool, max_pixels: int) -> Page:
    height, width = int(page.imagelength), int(page.imagewidth)
    if height <= 0 or width <= 0:
        raise ImageRejected("corrupt", "not a sound TIFF file: it states no size")
    tiled = bool(page.is_tiled)
    rows = int(page.tilelength) if tiled else min(height, int(page.rowsperstrip) or height)
    columns = int(page.tilewidth) if tiled else width
    if rows <= 0 or columns <= 0:
        raise ImageRejected("corrupt", "not a sound TIFF file: its tiles have no size")
    check_pixels(height, width, max_pixels)
    check_pixels(rows, columns, max_pixels)  # each tile is decoded whole
    kind = _kind_of(page)
    if page.imagedepth != 1 or not 0 < kind.samples <= _MOST_SAMPLES:
        raise ImageRejected(
            "unsupported", f"a TIFF of {kind.samples} samples a pixel and {page.imagedepth} layers"
        )
    value = page.tags.valueof
    stands_for_pixels = kind.compression in (*FAX, JPEG, OLD_JPEG, WEBP)
    decompress: Any = page.decode if stands_for_pixels else None
    tables = page.jpegtables if stands_for_pixels else None

    def decode(strip: bytes, number: int) -> npt.NDArray[Any]:
        return np.asarray(decompress(strip, number, jpegtables=tables)[0][0])

    orientation, icc = value(_ORIENTATION), value(_ICC)
    palette = page.colormap if kind.photometric == PALETTE else None
    return Page(
        int(page.index), kind, height, width, rows, columns, tiled,
        tuple(map(int, page.dataoffsets)),
        tuple(map(int, page.databytecounts)) if any(tag in page.tags for tag in _LENGTHS) else (),
        big_endian,
        mirrored=page.fillorder == 2,
        orientation=int(orientation) if isinstance(orientation, int) and 1 <= orientation <= 8 else 1,
        icc=icc if isinstance(icc, bytes) else None,
        palette=None if palette is None else np.asarray(palette, np.uint16),
        max_sample=int(_first(value(_MAX_SAMPLE)) or 0),
        declared_range=_range(_first(value(_S_MIN_SAMPLE)), _first(value(_S_MAX_SAMPLE))),
        luma=_fractions(value(_COEFFICIENTS), 3),
        reference=_fractions(value(_REFERENCE), 6),
        decode=decode,
    )  # fmt: skip


def _kind_of(page: Any) -> Kind:
    bits = page.bitspersample
    samples, compression = int(page.samplesperpixel), int(page.compression)
    formats = page.sampleformat
    subsampling = page.tags.valueof(_SUBSAMPLING) or (2, 2)  # the default of the specification
    extra = tuple(map(int, page.extrasamples))
    if page.photometric == RGB and samples == 4 and not extra:
        extra = (UNASSOCIATED,)  # writers that leave the tag out mean this
    return Kind(
        int(page.photometric),
        tuple(map(int, bits)) if isinstance(bits, tuple) else (int(bits),),
        int(formats) if isinstance(formats, int) else 0,
        samples,
        extra,
        compression,
        int(page.predictor) if compression in COMPRESSIONS and COMPRESSIONS[compression].bits == 0 else 1,
        in_planes=page.planarconfig == 2 and samples > 1,
        subsampling=(int(subsampling[0]), int(subsampling[1])) if page.photometric == YCBCR else (1, 1),
        ink_set=int(_first(page.tags.valueof(_INK_SET)) or 1),
    )


def _first(value: Any) -> float | None:
    if isinstance(value, tuple | np.ndarray):
        value = value[0] if len(value) else None
    return value if isinstance(value, int | float) else None


def _range(low: float | None, high: float | None) -> tuple[float, float] | None:
    if low is None or high is None or not np.isfinite([low, high]).all() or low >= high:
        return None
    return float(low), float(high)


def _fractions(value: Any, count: int) -> tuple[float, ...]:
    """Return the values of a tag that holds ``count`` fractions; none if it holds more or fewer."""
    if not isinstance(value, tuple) or len(value) != 2 * count or not all(value[1::2]):
        return ()
    return tuple(above / below for above, below in zip(value[::2], value[1::2], strict=True))
