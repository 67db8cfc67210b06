"""TIFFs of every kind, written byte by byte from the specification (TIFF 6.0 and its supplements).

A library that reads what it wrote hides its errors. So only the numbers of ``shardmill.infra.codecs.tiff``
are used.
"""

from __future__ import annotations

import io
import lzma
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
from PIL import Image

from shardmill.infra.codecs.tiff.kinds import (
    DEFLATE,
    FAX,
    FLOAT,
    FLOATING_POINT,
    HORIZONTAL,
    JPEG,
    LZMA,
    LZW,
    OLD_DEFLATE,
    OLD_JPEG,
    PACKBITS,
    PALETTE,
    UNCOMPRESSED,
    WEBP,
    YCBCR,
    ZSTD,
    Kind,
)

Samples = npt.NDArray[Any]

_TYPE_BYTES = {1: "B", 3: "H", 4: "I", 5: "II", 11: "f", 12: "d", 16: "Q"}
_PILLOW_NAMES = {LZW: "tiff_lzw", PACKBITS: "packbits", 2: "tiff_ccitt", 3: "group3", 4: "group4"}


@dataclass(frozen=True)
class Layout:
    """Where the samples of a file lie.

    Attributes:
        rows: of a strip or tile.
        columns: of a tile; 0 for strips.
        big_endian: byte order.
        big_tiff: offsets have 8 bytes.
        mirrored: the low bit of each byte comes first.
        directory_first: the strips are the last thing in the file.
        tags: further tags, a type and values by their number.
    """

    rows: int = 5
    columns: int = 0
    big_endian: bool = False
    big_tiff: bool = False
    mirrored: bool = False
    directory_first: bool = False
    tags: Mapping[int, tuple[int, Sequence[float]]] = field(default_factory=dict)


def tiff(kind: Kind, samples: Samples, layout: Layout = Layout(), palette: Samples | None = None) -> bytes:
    """Write a TIFF of one page.

    Args:
        kind: of the samples.
        samples: [H, W, samples], of the machine's byte order.
        layout: of the file.
        palette: uint16 [entries, 3].
    """
    return pages([(kind, samples, layout, palette)])


def pages(content: Sequence[tuple[Kind, Samples, Layout, Samples | None]]) -> bytes:
    """Write a TIFF of several pages. The layout of the first gives the byte order."""
    layout = content[0][2]
    order = ">" if layout.big_endian else "<"
    mark = b"MM" if layout.big_endian else b"II"
    if layout.big_tiff:
        head, offset_form = mark + struct.pack(order + "HHH", 43, 8, 0), order + "Q"
    else:
        head, offset_form = mark + struct.pack(order + "H", 42), order + "I"
    body = bytearray(head + struct.pack(offset_form, 0))
    link = len(head)
    for kind, samples, own, palette in content:
        strips = _strips(kind, samples, own, order)
        tags = _tags(kind, samples, own, palette, strips)
        tags[_offsets_tag(own)] = (4, [0] * len(strips))
        if own.directory_first:
            start = len(body) + len(_directory(tags, order, layout.big_tiff, len(body))[0])
            tags[_offsets_tag(own)] = (4, _places(start, strips))
        else:
            tags[_offsets_tag(own)] = (4, _places(len(body), strips))
            body += b"".join(strips)
        struct.pack_into(offset_form, body, link, len(body))
        directory, next_at = _directory(tags, order, layout.big_tiff, len(body))
        link = len(body) + next_at
        body += directory
        if own.directory_first:
            body += b"".join(strips)
    return bytes(body)


def _places(start: int, strips: list[bytes]) -> list[int]:
    places = []
    for strip in strips:
        places.append(start)
        start += len(strip)
    return places


def _offsets_tag(layout: Layout) -> int:
    return 324 if layout.columns else 273


def _tags(
    kind: Kind, samples: Samples, layout: Layout, palette: Samples | None, strips: list[bytes]
) -> dict[int, tuple[int, Sequence[float]]]:
    height, width, channels = samples.shape
    bits = list(kind.bits) * (channels if len(kind.bits) == 1 else 1)
    tags: dict[int, tuple[int, Sequence[float]]] = {
        256: (4, [width]), 257: (4, [height]), 258: (3, bits), 259: (3, [kind.compression]),
        262: (3, [kind.photometric]), 277: (3, [channels]), 284: (3, [2 if kind.in_planes else 1]),
        339: (3, [kind.sample_format] * channels), 317: (3, [kind.predictor]),
        266: (3, [2 if layout.mirrored else 1]),
    }  # fmt: skip
    if layout.columns:
        tags |= {322: (4, [layout.columns]), 323: (4, [layout.rows]), 325: (4, [len(s) for s in strips])}
    else:
        tags |= {278: (4, [layout.rows]), 279: (4, [len(strip) for strip in strips])}
    if kind.extra:
        tags[338] = (3, kind.extra)
    if kind.photometric == YCBCR:
        tags[530] = (3, kind.subsampling)
    if kind.photometric == PALETTE and palette is not None:
        tags[320] = (3, palette.T.reshape(-1).tolist())
    if kind.ink_set != 1:
        tags[332] = (3, [kind.ink_set])
    return tags | layout.tags


def _directory(
    tags: Mapping[int, tuple[int, Sequence[float]]], order: str, big: bool, start: int
) -> tuple[bytes, int]:
    """Return the bytes of a directory, and where in it the offset of the next one stands."""
    count, head, cell = ("Q", "HHQ", 8) if big else ("H", "HHI", 4)
    entries = b""
    outside = b""
    fixed = struct.calcsize("=" + count) + len(tags) * (struct.calcsize("=" + head) + cell) + cell
    for number, (kind, values) in sorted(tags.items()):
        each = _TYPE_BYTES[kind]
        content = struct.pack(order + each[0] * len(values), *values)
        content = content.ljust(cell, b"\x00")
        if len(content) > cell:
            place = start + fixed + len(outside)
            outside += content
            content = struct.pack(order + ("Q" if big else "I"), place)
        entries += struct.pack(order + head, number, kind, len(values) // len(each)) + content
    directory = struct.pack(order + count, len(tags)) + entries
    return directory + bytes(cell) + outside, len(directory)


def _strips(kind: Kind, samples: Samples, layout: Layout, order: str) -> list[bytes]:
    height, width, channels = samples.shape
    parts = [samples[:, :, at : at + 1] for at in range(channels)] if kind.in_planes else [samples]
    strips = []
    for part in parts:
        for top in range(0, height, layout.rows):
            for left in range(0, width, layout.columns or width):
                piece = part[top : top + layout.rows, left : left + (layout.columns or width)]
                if layout.columns:  # tiles are filled up
                    wide = [(0, layout.rows - piece.shape[0]), (0, layout.columns - piece.shape[1]), (0, 0)]
                    piece = np.pad(piece, wide, mode="edge")
                strips.append(_strip(kind, piece, layout, order))
    return strips


def _strip(kind: Kind, piece: Samples, layout: Layout, order: str) -> bytes:
    if kind.compression in (JPEG, OLD_JPEG, WEBP, *FAX):
        content = _picture(kind, piece)
    else:
        if kind.photometric == YCBCR:
            content = _sampled(piece, *kind.subsampling)
        else:
            content = _packed(_predicted(kind, piece), kind, order)
        content = compressed(content, kind.compression, len(content) // piece.shape[0])
    return imagecodecs.bitorder_decode(content) if layout.mirrored else content


def _predicted(kind: Kind, piece: Samples) -> Samples:
    if kind.predictor != HORIZONTAL:
        return piece
    before = np.concatenate([np.zeros_like(piece[:, :1]), piece[:, :-1]], axis=1)
    return piece - before  # wraps, as the specification has it


def _packed(piece: Samples, kind: Kind, order: str) -> bytes:
    bits = kind.bits[0]
    if kind.predictor == FLOATING_POINT:  # Adobe's technical note 3: bytes of all samples, high ones first
        rows = piece.astype(piece.dtype.newbyteorder(">")).reshape(piece.shape[0], -1)
        planes = rows.view(np.uint8).reshape(*rows.shape, bits // 8).transpose(0, 2, 1).reshape(len(rows), -1)
        before = np.zeros_like(planes)
        before[:, piece.shape[2] :] = planes[:, : -piece.shape[2]]
        return (planes - before).tobytes()
    if bits in (8, 16, 32, 64):
        return piece.astype(piece.dtype.newbyteorder(order)).tobytes()
    places = np.arange(bits - 1, -1, -1)
    rows = piece.reshape(piece.shape[0], -1).astype(np.uint64)
    digits = (rows[:, :, None] >> places.astype(np.uint64) & np.uint64(1)).astype(np.uint8)
    return b"".join(np.packbits(row.reshape(-1)).tobytes() for row in digits)


def _sampled(piece: Samples, across: int, down: int) -> bytes:
    """YCbCr in units of ``down`` × ``across`` samples of luma and two of chroma (section 21)."""
    fill = [(0, -piece.shape[0] % down), (0, -piece.shape[1] % across), (0, 0)]
    piece = np.pad(piece, fill, mode="edge")
    content = bytearray()
    for top in range(0, piece.shape[0], down):
        for left in range(0, piece.shape[1], across):
            unit = piece[top : top + down, left : left + across]
            content += unit[:, :, 0].tobytes() + unit[0, 0, 1:].tobytes()
    return bytes(content)


def compressed(content: bytes, compression: int, row_bytes: int) -> bytes:
    """Compress bytes with a library that is not the decoder's own."""
    if compression in (DEFLATE, OLD_DEFLATE):
        return zlib.compress(content)
    if compression == LZMA:
        return lzma.compress(content, lzma.FORMAT_XZ)
    if compression == ZSTD:
        return imagecodecs.zstd_encode(content)
    if compression in (LZW, PACKBITS):
        # Each row is packed by itself; one run of PackBits may not reach into the next (section 9).
        rows = len(content) // row_bytes if compression == PACKBITS else 1
        image = Image.frombytes("L", (len(content) // rows, rows), content)
        return _strip_of(image, _PILLOW_NAMES[compression])
    assert compression == UNCOMPRESSED
    return content


def _picture(kind: Kind, piece: Samples) -> bytes:
    """A strip that is a picture of its own."""
    if kind.compression in FAX:
        image = Image.fromarray(piece[:, :, 0].astype(np.uint8) * 255).convert("1")
        return _strip_of(image, _PILLOW_NAMES[kind.compression])
    stream = io.BytesIO()
    if kind.compression == WEBP:
        Image.fromarray(np.ascontiguousarray(piece)).save(stream, "WEBP", lossless=True, exact=True)
    else:
        return jpeg_strip(kind, piece)
    return stream.getvalue()


def jpeg_strip(kind: Kind, piece: Samples) -> bytes:
    """A JPEG whose components are the samples, without a segment that says what they mean."""
    sampling = f"{kind.subsampling[0]}x{kind.subsampling[1]}"
    space = {1: "grayscale", 3: "ycbcr" if kind.photometric == YCBCR else "rgb", 4: "cmyk"}[piece.shape[2]]
    known = {"1x1": "444", "2x1": "422", "2x2": "420", "1x2": "440", "4x1": "411"}
    return imagecodecs.jpeg8_encode(
        np.ascontiguousarray(piece),
        level=95,
        colorspace=space,
        outcolorspace=space,
        subsampling=known[sampling] if space == "ycbcr" else None,
    )


def _strip_of(image: Image.Image, compression: str) -> bytes:
    """The only strip of the file that Pillow writes with libtiff."""
    stream = io.BytesIO()
    image.save(stream, "TIFF", compression=compression, strip_size=1 << 30)
    data = stream.getvalue()
    with Image.open(io.BytesIO(data)) as again:
        tags = again.tag_v2  # type: ignore[attr-defined]
        assert len(tags[273]) == 1
        return data[tags[273][0] : tags[273][0] + tags[279][0]]


def dtype_of(kind: Kind) -> np.dtype[Any]:
    """The type of the samples of a kind."""
    bits = kind.bits[0]
    size = 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8
    return np.dtype({FLOAT: "f", 2: "i"}.get(kind.sample_format, "u") + str(size))
