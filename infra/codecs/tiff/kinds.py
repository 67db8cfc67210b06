"""The kinds of TIFF that are read: those whose samples were compared with what other programs read.

``tests/unit/infra/codecs/tiff/test_kinds.py`` makes a file of each combination that this table lets in,
and compares it. Every other combination is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tifffile

from shardmill.infra.codecs.formats import ImageRejected

UINT, INT, FLOAT = 1, 2, 3
_FORMATS = {1: "", 2: "signed ", 3: "floating-point ", 4: "untyped ", 5: "complex ", 6: "complex "}

WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, INKS, YCBCR, CIE_LAB = 0, 1, 2, 3, 5, 6, 8
_RAW_PHOTOMETRICS = (32803, 34892)  # a colour filter array, and linear raw

UNCOMPRESSED, _FAX_1D, _GROUP_3, GROUP_4, LZW, OLD_JPEG, JPEG, DEFLATE, PACKBITS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    32773,
)
FAX = (_FAX_1D, _GROUP_3, GROUP_4)
OLD_DEFLATE, LZMA, ZSTD, WEBP = 32946, 34925, 50000, 50001

HORIZONTAL, FLOATING_POINT = 2, 3

UNSPECIFIED, ASSOCIATED, UNASSOCIATED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Color:
    """A kind of colour.

    Attributes:
        name: as records state it.
        channels: samples of a pixel, without further ones.
        bits: bits of a sample, by the sample's format.
        bits_with_more: bits of a sample in pixels with opacity or channels of no stated meaning.
        most_more: the most such channels.
        meanings: that such channels may have.
    """

    name: str
    channels: int
    bits: Mapping[int, tuple[int, ...]]
    bits_with_more: tuple[int, ...] = ()
    most_more: int = 0
    meanings: tuple[int, ...] = (UNSPECIFIED, ASSOCIATED, UNASSOCIATED)


# Bits of a sample that are read, by its format: of grey, and of all shades that keep the file's depth.
_SAMPLE_BITS = {UINT: (1, 2, 4, 8, 10, 12, 14, 16, 32), INT: (8, 16, 32), FLOAT: (16, 32, 64)}
COLORS = {
    # Of the other depths no second decoder takes the largest sample for black.
    WHITE_IS_ZERO: _Color("grey", 1, {UINT: (1, 2, 4, 8, 16), INT: (8,)}, (8, 16), 1),
    BLACK_IS_ZERO: _Color("grey", 1, _SAMPLE_BITS, (8, 16), 1),
    RGB: _Color("RGB", 3, {UINT: (8, 10, 12, 14, 16)}, (8, 16), 3),
    PALETTE: _Color("palette", 1, {UINT: (1, 2, 4, 8)}, (8,), 1, (UNSPECIFIED, UNASSOCIATED)),
    INKS: _Color("CMYK", 4, {UINT: (8, 16)}),
    YCBCR: _Color("YCbCr", 3, {UINT: (8,)}),
    CIE_LAB: _Color("Lab", 3, {UINT: (8,)}),
}


@dataclass(frozen=True, slots=True)
class _Compression:
    """A compression.

    Attributes:
        colors: photometric interpretations that it is read with; none: with all.
        bits: of the only samples, unsigned, that it is read with; 0: with all samples.
        most_more: the most samples of a pixel behind those of its colour.
        in_planes: it is read with samples in planes.
        predictors: that it is read with.
        lossy: it may change samples.
    """

    colors: tuple[int, ...] = ()
    bits: int = 0
    most_more: int = 8
    in_planes: bool = True
    predictors: tuple[int, ...] = (1,)
    lossy: bool = False


_PREDICTED = _Compression(predictors=(1, HORIZONTAL, FLOATING_POINT))
_OF_FAX = _Compression((WHITE_IS_ZERO, BLACK_IS_ZERO), bits=1, most_more=0, in_planes=False)
COMPRESSIONS = {
    UNCOMPRESSED: _Compression(),
    **dict.fromkeys(FAX, _OF_FAX),
    LZW: _PREDICTED,
    DEFLATE: _PREDICTED,
    OLD_DEFLATE: _PREDICTED,
    PACKBITS: _Compression(),
    LZMA: _PREDICTED,
    ZSTD: _PREDICTED,
    JPEG: _Compression(
        (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, INKS, YCBCR), 8, most_more=0, in_planes=False, lossy=True
    ),
    OLD_JPEG: _Compression((YCBCR,), 8, most_more=0, in_planes=False, lossy=True),
    WEBP: _Compression((RGB,), 8, most_more=1, in_planes=False, lossy=True),
}
# Bits of samples whose difference to their neighbour may be stored.
_PREDICTED_BITS = {HORIZONTAL: {UINT: (8, 16, 32), INT: (8, 16, 32)}, FLOATING_POINT: {FLOAT: (16, 32, 64)}}
# Columns and rows that share a sample of chroma. A JPEG within a TIFF has its own, which is the same.
SUBSAMPLINGS = ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2))
_JPEG_SUBSAMPLINGS = ((1, 1), (2, 1), (2, 2), (1, 2), (4, 1))


@dataclass(frozen=True, slots=True)
class Kind:
    """What the tags of a page say of its samples.

    Attributes:
        photometric: the interpretation.
        bits: bits of a sample; several if samples differ.
        sample_format: UINT, INT, FLOAT or another number.
        samples: samples of a pixel.
        extra: meanings of the samples behind those of the colour, as far as they are stated.
        compression: the number of the compression.
        predictor: 1 (none), 2 (horizontal), 3 (floating-point) or another number.
        in_planes: samples lie in planes, not together.
        subsampling: columns and rows that share a sample of chroma.
        ink_set: 1 is CMYK.
    """

    photometric: int
    bits: tuple[int, ...]
    sample_format: int
    samples: int
    extra: tuple[int, ...] = ()
    compression: int = UNCOMPRESSED
    predictor: int = 1
    in_planes: bool = False
    subsampling: tuple[int, int] = field(default=(1, 1))
    ink_set: int = 1

    def __str__(self) -> str:
        more = self.samples - (COLORS[self.photometric].channels if self.photometric in COLORS else 0)
        words = [
            _name(tifffile.PHOTOMETRIC, self.photometric),
            f"with {more} further channels" if self.photometric in COLORS and more > 0 else "",
            f"of {_FORMATS.get(self.sample_format, 'unknown ')}{'/'.join(map(str, self.bits))}-bit samples",
            "in planes" if self.in_planes else "",
            f"compressed by {_name(tifffile.COMPRESSION, self.compression)}"
            if self.compression != UNCOMPRESSED
            else "not compressed",
            f"with predictor {_name(tifffile.PREDICTOR, self.predictor)}" if self.predictor != 1 else "",
            f"with chroma sampled {self.subsampling}" if self.photometric == YCBCR else "",
            f"with ink set {self.ink_set}" if self.photometric == INKS and self.ink_set != 1 else "",
        ]
        return " ".join(word for word in words if word)


def check_kind(kind: Kind) -> None:
    """Refuse a kind of TIFF that was not compared.

    Raises:
        ImageRejected: "unsupported", with the combination.
    """
    if kind.photometric in _RAW_PHOTOMETRICS:
        raise camera_raw(f"its samples are those of a sensor ({kind})")
    if not _is_read(kind):
        remedy = "save it as TIFF or PNG of 8 or 16 bits in grey or RGB"
        if is_shades(kind) and _are_read(kind):
            remedy = f"set image.depth and image.channels to keep, or {remedy}"
        raise ImageRejected("unsupported", f"a kind of TIFF that is not read: {kind}; {remedy}")


def is_shades(kind: Kind) -> bool:
    """Tell whether samples are shades of grey, of red, green and blue, or of further channels."""
    compression = COMPRESSIONS.get(kind.compression)
    of_8_bits = compression is not None and (compression.bits or compression.lossy)
    return kind.photometric in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB) and not of_8_bits


def check_samples(kind: Kind) -> None:
    """Refuse shades whose samples were not compared with those of another reader.

    Raises:
        ImageRejected: "unsupported", with the combination.
    """
    if not _are_read(kind):
        raise ImageRejected("unsupported", f"a kind of TIFF whose samples are not read: {kind}")


def _are_read(kind: Kind) -> bool:
    compression = COMPRESSIONS.get(kind.compression)
    return (
        compression is not None
        and len(kind.bits) == 1
        and kind.bits[0] in _SAMPLE_BITS.get(kind.sample_format, ())
        and kind.samples >= COLORS[kind.photometric].channels
        and (kind.photometric != WHITE_IS_ZERO or kind.sample_format == UINT)
        and all(meaning in (UNSPECIFIED, ASSOCIATED, UNASSOCIATED) for meaning in kind.extra)
        and _fits_predictor(kind, compression)
    )


def camera_raw(why: str) -> ImageRejected:
    """Return the rejection of a camera's raw file."""
    return ImageRejected(
        "unsupported", f"a camera raw file: {why}; export it from a raw converter as TIFF, PNG or JPEG"
    )


def _is_read(kind: Kind) -> bool:
    color, compression = COLORS.get(kind.photometric), COMPRESSIONS.get(kind.compression)
    if color is None or compression is None or len(kind.bits) != 1 or kind.ink_set != 1:
        return False
    (bits,), more = kind.bits, kind.samples - color.channels
    if bits not in color.bits.get(kind.sample_format, ()) or not 0 <= more <= color.most_more:
        return False
    if more and (bits not in color.bits_with_more or kind.sample_format != UINT):
        return False
    if any(meaning not in color.meanings for meaning in kind.extra[:more]):
        return False
    fits_compression = (
        (not compression.colors or kind.photometric in compression.colors)
        and (not compression.bits or (kind.sample_format, bits) == (UINT, compression.bits))
        and more <= compression.most_more
        and (compression.in_planes or not kind.in_planes or kind.samples == 1)
    )
    fits_sampling = kind.photometric != YCBCR or (
        kind.subsampling in (_JPEG_SUBSAMPLINGS if compression.lossy else SUBSAMPLINGS)
        and (kind.predictor, kind.in_planes) == (1, False)
    )
    return fits_compression and _fits_predictor(kind, compression) and fits_sampling


def _fits_predictor(kind: Kind, compression: _Compression) -> bool:
    return kind.predictor == 1 or (
        kind.predictor in compression.predictors
        and kind.bits[0] in _PREDICTED_BITS[kind.predictor].get(kind.sample_format, ())
    )


def _name(names: type, number: int) -> str:
    """Return a name of an enumeration of tifffile, with the number."""
    try:
        return f"{names(number).name} ({number})"
    except ValueError:
        return str(number)
