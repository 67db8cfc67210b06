"""Decode the strips or tiles of a TIFF to samples (TIFF 6.0, sections 7 to 9, 11, 14, 15 and 21).

A decoder that lacks bytes makes rows up. So a strip that is missing, or too short for its rows, is refused.
Some writers state a length that is too large, for example the one before compression. That does no harm if
the strip holds all rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.formats import ImageRejected, check_pixels
from shardmill.infra.codecs.jpeg.header import check_header, read_header
from shardmill.infra.codecs.jpeg.segments import EOI, SOI
from shardmill.infra.codecs.structure.webp_chunks import read_webp
from shardmill.infra.codecs.tiff.kinds import (
    DEFLATE,
    FAX,
    FLOAT,
    FLOATING_POINT,
    GROUP_4,
    HORIZONTAL,
    INT,
    JPEG,
    LZMA,
    LZW,
    OLD_DEFLATE,
    OLD_JPEG,
    PACKBITS,
    UNCOMPRESSED,
    WEBP,
    YCBCR,
    ZSTD,
)
from shardmill.infra.codecs.tiff.page import Page, damaged

Samples = npt.NDArray[Any]

_END_OF_FAX = f"{1:012b}" * 2  # EOFB of ITU-T T.6
_TAIL_BYTES = 64  # an end mark may be padded
_MISSING = "a strip of the TIFF file is missing or cut short"


class _Short(Exception):
    """A strip has too few bytes for its rows."""


def decode_strips(
    data: bytes, page: Page, max_pixels: int, salvage: bool, lines: range | None = None
) -> Samples:
    """Decode a picture, or some lines of its strips.

    Args:
        data: the file.
        page: page of a kind that is read (``kinds.check_kind``).
        max_pixels: largest picture within a strip.
        salvage: leave zero what lies behind the end of the file.
        lines: which lines of strips that lie side by side, from 0; None: all.

    Returns:
        Samples of the type and byte order of this machine, [H, W, samples]. Fewer than 8 bits are not scaled.

    Raises:
        ImageRejected: "truncated" or "corrupt".
    """
    needed = page.in_a_plane * page.planes
    if len(page.offsets) < needed or (len(page.lengths) < needed and needed > 1):
        raise ImageRejected("truncated", _MISSING)
    lines = range(page.in_a_plane // page.across) if lines is None else lines
    begin, end = lines.start * page.rows, min(lines.stop * page.rows, page.height)
    picture = np.zeros((page.planes, end - begin, page.width, page.together), sample_type(page))
    decoded_any = False
    for number in (
        plane * page.in_a_plane + place
        for plane in range(page.planes)
        for place in range(lines.start * page.across, lines.stop * page.across)
    ):
        strip, cut = _strip(data, page, number)
        top, left, rows, columns = page.size_of(number)
        try:
            samples = _decode(strip, page, number, max_pixels, cut=cut, pad=salvage and cut)
        except _Short as short:
            if not salvage or not cut:
                early = "the TIFF file ends early" if cut else _MISSING
                raise ImageRejected("truncated", early) from short
            continue
        decoded_any = True
        part = picture[number // page.in_a_plane, top - begin : top - begin + rows, left : left + columns]
        part[:] = samples[: part.shape[0], : part.shape[1]]
    if not decoded_any:
        raise ImageRejected("truncated", "the TIFF file ends so early that nothing is left")
    if page.kind.compression in FAX and not salvage:
        _check_fax(data, page, picture[0, :, :, 0])
    return picture[0] if page.planes == 1 else np.ascontiguousarray(np.moveaxis(picture[..., 0], 0, 2))


def sample_type(page: Page) -> np.dtype[Any]:
    """Return the type of the samples that ``decode_strips`` returns."""
    (bits,) = page.kind.bits
    size = 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8
    letter = {INT: "i", FLOAT: "f"}.get(page.kind.sample_format, "u")
    return np.dtype(f"{letter}{size}")


def _strip(data: bytes, page: Page, number: int) -> tuple[bytes, bool]:
    """Return the bytes of a strip, and whether the end of the file cuts them."""
    offset = page.offsets[number]
    length = page.lengths[number] if number < len(page.lengths) else 0
    if not length and page.in_a_plane * page.planes == 1:
        length = len(data) - offset  # some writers state no length of their only strip
        return data[offset:], length <= 0
    return data[offset : offset + length], offset + length > len(data)


def _decode(strip: bytes, page: Page, number: int, max_pixels: int, *, cut: bool, pad: bool) -> Samples:
    """Decode a strip to [rows, columns, samples].

    Args:
        strip: its bytes.
        page: that it belongs to.
        number: which strip, from 0.
        max_pixels: largest picture within it.
        cut: the end of the file cuts it.
        pad: with zeros, where it ends early.

    Raises:
        _Short: the strip ends early.
        ImageRejected: "corrupt", or its content may not be decoded.
    """
    if not strip:
        raise _Short
    _, _, rows, columns = page.size_of(number)
    decompress = _DECOMPRESSORS.get(page.kind.compression)
    try:
        if decompress is None:
            _check_picture_in(strip, page, max_pixels)
            samples = np.asarray(page.decode(strip, number))
            if samples.shape[2] != page.together or samples.dtype.itemsize != 1:
                raise ValueError("a strip has other channels than the picture")
            return samples
        if page.mirrored:
            strip = bytes(imagecodecs.bitorder_decode(strip))
        sampled = page.kind.photometric == YCBCR
        # Before compression each row begins with a whole byte.
        row_bytes = -(-columns * page.together * page.kind.bits[0] // 8)
        size = _sampled_bytes(page, rows, columns) if sampled else rows * row_bytes
        content = decompress(strip, size)
        if len(content) < size:
            if not pad:
                raise _Short
            content = content.ljust(size, b"\x00")
        if sampled:
            return _without_sampling(content, page, rows, columns)
        return _unpredicted(_unpacked(content[:size], page, rows, columns), page)
    except (ImageRejected, MemoryError, _Short):
        raise
    except Exception as error:  # libraries raise anything on hostile bytes; the error becomes a row
        if cut:
            raise _Short from error
        raise ImageRejected(
            "corrupt", f"not a sound TIFF file: its pixel data is damaged ({error})"
        ) from error


def _check_picture_in(strip: bytes, page: Page, max_pixels: int) -> None:
    """Check the header of a picture within a strip before it is decoded, and that it has its end."""
    compression = page.kind.compression
    if compression == OLD_JPEG and (page.in_a_plane > 1 or not strip.startswith(SOI)):
        raise ImageRejected(
            "unsupported",
            "a TIFF of the old JPEG compression whose strip is no JPEG of its own; save it as PNG",
        )
    if compression in (JPEG, OLD_JPEG):
        header = read_header(strip)
        check_header(header, max_pixels)
        tail = strip if compression == OLD_JPEG else strip.rstrip(b"\x00")[-_TAIL_BYTES:]
        if EOI not in tail or not header.complete:
            raise _Short
    elif compression == WEBP:
        webp = read_webp(strip)
        check_pixels(webp.height, webp.width, max_pixels)
    elif compression == GROUP_4:
        order = -1 if page.mirrored else 1  # the low bit of each byte comes first
        digits = "".join(f"{byte:08b}"[::order] for byte in strip[-_TAIL_BYTES:])
        if _END_OF_FAX not in digits:
            raise _Short


def _check_fax(data: bytes, page: Page, samples: Samples) -> None:
    """Compare with libtiff. Neither decoder reports damage, but they fill damaged rows in different ways."""
    try:
        again = imagecodecs.tiff_decode(data, index=page.number)
    except (imagecodecs.TiffError, IndexError, ValueError) as error:
        raise damaged("its fax data", error) from error
    if not np.array_equal(samples != 0, again != 0):
        raise damaged("its fax data", "two decoders fill rows in different ways")


def _unpacked(content: bytes, page: Page, rows: int, columns: int) -> Samples:
    """Return samples of the machine's own byte order: [rows, columns, samples]."""
    (bits,) = page.kind.bits
    dtype, shape = sample_type(page), (rows, columns, page.together)
    if bits not in (8, 16, 32, 64):
        runs = columns * page.together
        return np.asarray(imagecodecs.packints_decode(content, dtype, bits, runlen=runs)).reshape(shape)
    if page.kind.predictor == FLOATING_POINT:
        return np.frombuffer(content, dtype).reshape(shape)  # its bytes are no numbers yet
    stored = dtype.newbyteorder(">" if page.big_endian else "<")
    return np.frombuffer(content, stored).reshape(shape).astype(dtype, copy=False)


def _unpredicted(samples: Samples, page: Page) -> Samples:
    if page.kind.predictor == HORIZONTAL:
        return np.cumsum(samples, axis=1, dtype=samples.dtype)
    if page.kind.predictor == FLOATING_POINT:
        return np.asarray(imagecodecs.floatpred_decode(samples, axis=-2))
    return samples


def _sampled_bytes(page: Page, rows: int, columns: int) -> int:
    """Return the size of a strip of YCbCr before compression (bytes). Its pixels share samples of chroma."""
    across, down = page.kind.subsampling
    return -(-rows // down) * -(-columns // across) * (across * down + 2)


def _without_sampling(content: bytes, page: Page, rows: int, columns: int) -> Samples:
    """Repeat samples of chroma for all of their pixels (TIFF 6.0, section 21): uint8 [rows, columns, 3]."""
    across, down = page.kind.subsampling
    units = np.frombuffer(content[: _sampled_bytes(page, rows, columns)], np.uint8)
    units = units.reshape(-(-rows // down), -(-columns // across), across * down + 2)
    height, width = units.shape[0] * down, units.shape[1] * across
    squares = units[:, :, :-2].reshape(units.shape[0], units.shape[1], down, across)
    luma = squares.transpose(0, 2, 1, 3).reshape(height, width)
    chroma = units[:, :, -2:].repeat(down, axis=0).repeat(across, axis=1)
    return np.dstack((luma, chroma))[:rows, :columns]


def _inflate(strip: bytes, size: int) -> bytes:
    """Inflate a strip. It may hold more than its rows, and its end may be missing behind them."""
    try:
        return bytes(imagecodecs.deflate_decode(strip, out=size))
    except imagecodecs.DeflateError:
        inflate = zlib.decompressobj()
        content = inflate.decompress(strip, size)
        while len(content) >= size and inflate.unconsumed_tail and not inflate.eof:
            inflate.decompress(inflate.unconsumed_tail, 1 << 20)  # its checksum is behind what is left
        return content


def _unpack_bits(strip: bytes, size: int) -> bytes:
    """Decompress PackBits (TIFF 6.0, section 9). The strip may hold more than its rows."""
    position = length = 0
    while length < size and position < len(strip):
        count = strip[position]
        length += count + 1 if count < 128 else 257 - count if count > 128 else 0
        position += count + 2 if count < 128 else 2 if count > 128 else 1
    return bytes(imagecodecs.packbits_decode(strip[:position], out=length))


# Each takes the bytes of a strip and the size of its rows, and returns so many bytes, or fewer.
_DECOMPRESSORS: dict[int, Callable[[bytes, int], bytes]] = {
    UNCOMPRESSED: lambda strip, size: strip,
    LZW: lambda strip, size: bytes(imagecodecs.lzw_decode(strip, out=size)),
    DEFLATE: _inflate,
    OLD_DEFLATE: _inflate,
    PACKBITS: _unpack_bits,
    LZMA: lambda strip, size: bytes(imagecodecs.lzma_decode(strip, out=size)),
    ZSTD: lambda strip, size: bytes(imagecodecs.zstd_decode(strip, out=size)),
}
