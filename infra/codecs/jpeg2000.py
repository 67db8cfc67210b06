"""Decode JPEG 2000 files and bare codestreams (ISO/IEC 15444-1) to 8 bits and sRGB.

OpenJPEG, in imagecodecs, decodes the codestream to components. What they mean stands in the boxes around it
and is applied here: the palette, the order of the channels, opacity and the colour space. Kinds that were
not compared with other decoders (``tests/unit/infra/codecs/test_jpeg2000.py``) are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
from PIL import Image

from shardmill.infra.codecs.formats import (
    DecodedImage,
    ImageRejected,
    Pixels,
    SourceFacts,
    Wanted,
    check_pixels,
)
from shardmill.infra.codecs.pillow.raster import composited
from shardmill.infra.codecs.structure.boxes import boxes

_Channels = npt.NDArray[Any]

_CODESTREAM, _SIZ, _TILE_PART = b"\xff\x4f", b"\xff\x51", b"\xff\x90"
_END_OF_CODESTREAM = b"\xff\xd9"
_SRGB, _GREY, _SYCC = 16, 17, 18  # enumerated colour spaces
_ICC_METHODS = (2, 3)  # a restricted and any profile
_COLOR, _OPACITY, _PREMULTIPLIED = 0, 1, 2  # types of channels
_MOST_BITS, _MOST_COMPONENTS = 16, 5
_CHROMA_SAMPLINGS = ((1, 1), (2, 1), (2, 2))


@dataclass(frozen=True, slots=True)
class _Header:
    """What the file says of its picture.

    Attributes:
        codestream: the compressed picture.
        height: pixels.
        width: pixels.
        precisions: bits of each component, and whether it is signed.
        samplings: columns and rows that share a sample of each component.
        space: number of the enumerated colour space, or None.
        icc: the ICC profile, or None.
        palette: uint16 [entries, columns], or None.
        palette_bits: bits of each column of the palette.
        mapping: component, and column of the palette or None, of each channel; none without a palette.
        definitions: type and association of each channel that has a definition, by its number.
    """

    codestream: bytes
    height: int
    width: int
    precisions: tuple[tuple[int, bool], ...]
    samplings: tuple[tuple[int, int], ...]
    space: int | None = None
    icc: bytes | None = None
    palette: npt.NDArray[np.uint16] | None = None
    palette_bits: tuple[int, ...] = ()
    mapping: tuple[tuple[int, int | None], ...] = ()
    definitions: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        bits = "/".join(f"{'signed ' if signed else ''}{bits}" for bits, signed in self.precisions)
        space = {None: "no stated colour space", _SRGB: "sRGB", _GREY: "grey", _SYCC: "sYCC"}
        words = f"{len(self.precisions)} component(s) of {bits} bits, "
        words += "an ICC profile" if self.icc else space.get(self.space, f"colour space {self.space}")
        if any(sampling != (1, 1) for sampling in self.samplings):
            words += f", sampled {self.samplings}"
        return words + (", with a palette" if self.palette is not None else "")


def decode_jpeg2000(data: bytes, wanted: Wanted) -> DecodedImage:
    """Decode a JPEG 2000 file.

    Raises:
        ImageRejected: the file is damaged or cut, too large, or of a kind that is not read.
    """
    header = _read_header(data)
    check_pixels(header.height, header.width, wanted.max_pixels)
    _check_kind(header)
    components = _decoded(header)
    colors, alpha = _channels(header, components)
    image = Image.fromarray(np.ascontiguousarray(colors[:, :, 0] if colors.shape[2] == 1 else colors))
    opacity = None if alpha is None else Image.fromarray(np.ascontiguousarray(alpha))
    flat = composited(image, opacity, (header.icc,) if header.icc else (), wanted)
    name = {1: "grey", 3: "RGB"}[colors.shape[2]] if header.palette is None else "palette"
    if alpha is not None:
        name = "RGBA" if name == "RGB" else f"{name}+alpha"
    bits = max(bits for bits, _ in header.precisions)
    facts = SourceFacts(
        "jpeg2000", f"{name} {bits}-bit" if bits > 8 else name, header.height, header.width,
        icc_profile=flat.icc_profile, had_alpha=flat.had_alpha, note=flat.note,
    )  # fmt: skip
    return DecodedImage(flat.pixels(wanted.channels), facts)


def _check_kind(header: _Header) -> None:
    count = len(header.precisions)
    known_space = header.icc is not None or header.space in (None, _SRGB, _GREY, _SYCC)
    luma, *others = header.samplings
    sampled_alike = luma == (1, 1) and len(set(others)) <= 1 and set(others) <= set(_CHROMA_SAMPLINGS)
    subsampled = any(sampling != (1, 1) for sampling in header.samplings)
    if (
        not known_space
        or count > _MOST_COMPONENTS
        or len(set(header.precisions)) != 1
        or header.precisions[0][0] > _MOST_BITS
        or not sampled_alike
        or (subsampled and (count != 3 or header.space != _SYCC or header.palette is not None))
    ):
        raise ImageRejected(
            "unsupported",
            f"a kind of JPEG 2000 file that is not read: {header}; save it as PNG, in grey or RGB",
        )


def _decoded(header: _Header) -> _Channels:
    """Decode the components: unsigned, [H, W, components]."""
    if not _has_all_tiles(header.codestream):
        raise ImageRejected("truncated", "the JPEG 2000 file lacks a part of its picture")
    try:
        samples = np.asarray(imagecodecs.jpeg2k_decode(header.codestream, numthreads=1))
    except NotImplementedError as error:
        raise ImageRejected("unsupported", f"a kind of JPEG 2000 file that is not read: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # the library raises anything on hostile bytes; the error becomes a row
        if _END_OF_CODESTREAM not in header.codestream[-4096:]:
            raise ImageRejected("truncated", "the JPEG 2000 file ends early") from error
        raise ImageRejected("corrupt", f"not a sound JPEG 2000 file: {error}") from error
    samples = samples.reshape(*samples.shape[:2], -1)
    if samples.shape != (header.height, header.width, len(header.precisions)):
        raise ImageRejected(
            "corrupt", "not a sound JPEG 2000 file: its picture has another size than it says"
        )
    bits, signed = header.precisions[0]
    return (samples.astype(np.int32) + (1 << bits - 1)).astype(np.uint16) if signed else samples


def _has_all_tiles(codestream: bytes) -> bool:
    """Tell whether each tile has a part (annex A.4.2). OpenJPEG leaves tiles zero that have none."""
    right, bottom, _, _, width, height, left, top = (
        int.from_bytes(codestream[at : at + 4], "big") for at in range(8, 40, 4)
    )
    needed = -(-(right - left) // max(1, width)) * -(-(bottom - top) // max(1, height))
    at = 2
    while codestream[at : at + 2] != _TILE_PART and at + 4 <= len(codestream):  # the main header
        at += 2 + max(2, int.from_bytes(codestream[at + 2 : at + 4], "big"))
    found = set()
    while codestream[at : at + 2] == _TILE_PART and at + 12 <= len(codestream):
        found.add(codestream[at + 4 : at + 6])
        length = int.from_bytes(codestream[at + 6 : at + 10], "big")
        at = at + length if length >= 12 else len(codestream)  # 0: the part reaches to the end
    return len(found) >= needed


def _channels(header: _Header, components: _Channels) -> tuple[Pixels, Pixels | None]:
    """Return the colours, uint8 [H, W, 1 or 3], and the opacity, uint8 [H, W], or None."""
    bits = [header.precisions[0][0]] * components.shape[2]
    if header.palette is None:
        shades = [_shades(components[:, :, at], bits[at]) for at in range(components.shape[2])]
    else:
        indexes = np.minimum(components, len(header.palette) - 1)
        shades = [
            _shades(components[:, :, at], bits[at])
            if column is None
            else _shades(header.palette[indexes[:, :, at], column], header.palette_bits[column])
            for at, column in header.mapping
        ]
    numbers = _color_numbers(header, len(shades))
    alpha, premultiplied = _opacity(header, len(shades))
    colors = np.dstack([shades[number] for number in numbers])
    if header.space == _SYCC and colors.shape[2] == 3 and header.samplings[1] == (1, 1):
        colors = _rgb_of_sycc(colors)
    if alpha is None:
        return colors, None
    if premultiplied:
        part = np.maximum(shades[alpha], 1)[:, :, None] / 255
        colors = np.clip(np.rint(colors / part), 0, 255).astype(np.uint8)
    return colors, shades[alpha]


def _color_numbers(header: _Header, count: int) -> list[int]:
    """Return the channels of grey, or of red, green and blue."""
    said = {
        association: number
        for number, (kind, association) in header.definitions.items()
        if kind == _COLOR and number < count
    }
    if {1, 2, 3} <= set(said):
        return [said[1], said[2], said[3]]
    if 1 in said:
        return [said[1]]
    if count >= 3 and header.space != _GREY:
        return [0, 1, 2]
    return [0]


def _opacity(header: _Header, count: int) -> tuple[int | None, bool]:
    """Return the channel that is the opacity of the whole picture, or None, and whether colours hold it."""
    for number, (kind, association) in header.definitions.items():
        if kind in (_OPACITY, _PREMULTIPLIED) and association == 0 and number < count:
            return number, kind == _PREMULTIPLIED
    # Without definitions libvips and ImageMagick take a second or fourth channel for the opacity.
    return (count - 1, False) if not header.definitions and count in (2, 4) else (None, False)


def _shades(samples: _Channels, bits: int) -> Pixels:
    """Bring samples to 8 bits; those of 16 bits keep their high byte."""
    if bits in (8, 16):
        return (samples >> (bits - 8)).astype(np.uint8)
    table = np.rint(np.arange(1 << bits) * (255 / ((1 << bits) - 1))).astype(np.uint8)
    shades: Pixels = table.take(samples, mode="clip")
    return shades


def _rgb_of_sycc(ycc: Pixels) -> Pixels:
    """Convert sYCC (IEC 61966-2-1, amendment 1) to sRGB."""
    y, cb, cr = np.moveaxis(ycc.astype(np.float64) - (0, 128, 128), 2, 0)
    rgb = np.dstack((y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb))
    colors: Pixels = np.clip(np.rint(rgb), 0, 255).astype(np.uint8)
    return colors


def _read_header(data: bytes) -> _Header:
    try:
        if data.startswith(_CODESTREAM):
            return _Header(data, *_size(data))
        return _read_boxes(data)
    except (IndexError, ValueError) as error:
        raise ImageRejected("truncated", "the JPEG 2000 file ends early, within its header") from error


def _read_boxes(data: bytes) -> _Header:
    codestream = b""
    found: dict[bytes, bytes] = {}
    color: dict[str, Any] = {}
    for name, start, end in _flat_boxes(data):
        if name == b"jp2c":
            codestream = data[start:end]
            break
        content = data[start : min(end, len(data))]
        if name == b"colr" and not color:
            color = _color_space(content)
        found.setdefault(name, content)
    if not codestream:
        raise ValueError("no codestream")
    header = _Header(codestream, *_size(codestream), **color)
    palette, bits, mapping = _palette(found.get(b"pclr"), found.get(b"cmap", b""))
    if any(component >= len(header.precisions) for component, _ in mapping):
        raise ImageRejected("corrupt", "not a sound JPEG 2000 file: its palette is for another picture")
    return replace(
        header, palette=palette, palette_bits=bits, mapping=mapping,
        definitions=_definitions(found.get(b"cdef", b"")),
    )  # fmt: skip


def _flat_boxes(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, and start and end of the content, of each box, and of those within the header's."""
    for name, start, end in boxes(data, 0, len(data)):
        if name == b"jp2h":
            yield from boxes(data, start, min(end, len(data)))
        else:
            yield name, start, end


def _size(
    codestream: bytes,
) -> tuple[int, int, tuple[tuple[int, bool], ...], tuple[tuple[int, int], ...]]:
    """Read the SIZ segment: height, width, and precision and sampling of each component."""
    if codestream[:4] != _CODESTREAM + _SIZ:
        raise ImageRejected("corrupt", "not a sound JPEG 2000 file: its codestream has no header")
    right, bottom, left, top = (int.from_bytes(codestream[at : at + 4], "big") for at in range(8, 24, 4))
    count = int.from_bytes(codestream[40:42], "big")
    each = [codestream[at : at + 3] for at in range(42, 42 + 3 * count, 3)]
    if len(codestream) < 42 + 3 * count:
        raise ValueError("no size")
    if not count or right <= left or bottom <= top or not all(part[1] and part[2] for part in each):
        raise ImageRejected("corrupt", "not a sound JPEG 2000 file: its picture has no size")
    precisions = tuple(((part[0] & 0x7F) + 1, part[0] > 0x7F) for part in each)
    return bottom - top, right - left, precisions, tuple((part[1], part[2]) for part in each)


def _color_space(content: bytes) -> dict[str, Any]:
    """Return the arguments of a colour space, or none if it is of no known method."""
    if content[0] == 1:
        return {"space": int.from_bytes(content[3:7], "big")}
    return {"icc": content[3:]} if content[0] in _ICC_METHODS else {}


def _palette(
    content: bytes | None, mapping: bytes
) -> tuple[npt.NDArray[np.uint16] | None, tuple[int, ...], tuple[tuple[int, int | None], ...]]:
    """Return the palette, the bits of its columns, and the mapping of components to channels."""
    if content is None:
        return None, (), ()
    entries, columns = int.from_bytes(content[:2], "big"), content[2]
    bits = tuple((part & 0x7F) + 1 for part in content[3 : 3 + columns])
    sizes = [1 if size <= 8 else 2 for size in bits]
    if (
        not entries
        or not columns
        or len(content) < 3 + columns + entries * sum(sizes)
        or max(bits) > _MOST_BITS
    ):
        raise ImageRejected("corrupt", "not a sound JPEG 2000 file: its palette is too short or too deep")
    at, values = 3 + columns, []
    for _ in range(entries):
        row = []
        for size in sizes:
            row.append(int.from_bytes(content[at : at + size], "big"))
            at += size
        values.append(row)
    uses = [mapping[at : at + 4] for at in range(0, len(mapping) - 3, 4)]
    channels = tuple((int.from_bytes(use[:2], "big"), use[3] if use[2] == 1 else None) for use in uses)
    if not channels or any(column is not None and column >= columns for _, column in channels):
        raise ImageRejected("corrupt", "not a sound JPEG 2000 file: it does not say how its palette is used")
    return np.array(values, np.uint16), bits, channels


def _definitions(content: bytes) -> dict[int, tuple[int, int]]:
    """Return type and association of each channel, by its number."""
    numbers = np.frombuffer(content[2 : 2 + (len(content) - 2) // 6 * 6], ">u2").reshape(-1, 3).tolist()
    return {channel: (kind, association) for channel, kind, association in numbers}
