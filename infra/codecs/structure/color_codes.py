"""Read the colours that a file states by code points (ITU-T H.273), and refuse those that are not converted.

PNG states them in its chunk cICP, AVIF and HEIF in a box colr of type nclx (ISO/IEC 23008-12, 6.5.5).
Decoders return the samples as stored: HDR and wide gamuts would become records with wrong colours.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.structure.boxes import bounded_boxes, heif_parts

# Curves and primaries that every viewer of still images shows as sRGB; 2 means that the file does not say.
_CURVES_LIKE_SRGB = frozenset({1, 2, 6, 13, 14, 15})
_PRIMARIES_LIKE_SRGB = frozenset({1, 2, 5, 6, 7})
_HDR = {16: "HDR by PQ (SMPTE ST 2084)", 18: "HDR by HLG (ARIB STD-B67)"}
_CURVES = {4: "of gamma 2.2", 5: "of gamma 2.8", 8: "linear", 17: "of SMPTE ST 428-1"}
_PRIMARIES = {4: "NTSC 1953", 9: "BT.2020", 11: "DCI-P3", 12: "Display P3"}
_MAX_ITEMS = 10_000


@dataclass(frozen=True, slots=True)
class ColorCodes:
    """Code points of ITU-T H.273.

    Attributes:
        primaries: ColourPrimaries, such as 1 for BT.709 and 9 for BT.2020.
        curve: TransferCharacteristics, such as 13 for sRGB and 16 for PQ.
    """

    primaries: int
    curve: int

    def check(self, *, has_profile: bool) -> None:
        """Check that the colours are those of sRGB, or converted.

        Args:
            has_profile: an ICC profile says how colours other than HDR are converted.

        Raises:
            ImageRejected: they are neither.
        """
        what = _HDR.get(self.curve, "")
        if not what and not has_profile:
            if self.curve not in _CURVES_LIKE_SRGB:
                what = _CURVES.get(self.curve, f"of transfer characteristics {self.curve}")
            elif self.primaries not in _PRIMARIES_LIKE_SRGB:
                what = f"those of {_PRIMARIES.get(self.primaries, f'colour primaries {self.primaries}')}"
        if what:
            raise ImageRejected("unsupported", f"its colours are {what}; convert it to sRGB first")


def codes_in_chunk(chunk: bytes) -> ColorCodes | None:
    """Return the code points of the content of a chunk cICP; None: it is none."""
    return ColorCodes(chunk[0], chunk[1]) if len(chunk) == 4 else None


def codes_in_boxes(data: bytes) -> ColorCodes | None:
    """Return the code points of the primary image of an AVIF or HEIF file; None: it states none."""
    parts = heif_parts(data)
    if b"pitm" not in parts or b"iprp" not in parts:
        return None
    at = parts[b"pitm"][0]
    primary = _number(data, at + 4, 2 if data[at : at + 1] == b"\x00" else 4)
    within = {name: (start, end) for name, start, end in bounded_boxes(data, *parts[b"iprp"])}
    if b"ipco" not in within or b"ipma" not in within:
        return None
    properties = list(bounded_boxes(data, *within[b"ipco"]))
    for index in _associated(data, *within[b"ipma"], primary):
        if 0 < index <= len(properties):
            name, start, _ = properties[index - 1]
            if name == b"colr" and data[start : start + 4] == b"nclx":
                return ColorCodes(_number(data, start + 4, 2), _number(data, start + 6, 2))
    return None


def _associated(data: bytes, start: int, end: int, item: int) -> list[int]:
    """Return the numbers, from 1, of the properties of an item, of a box ipma (ISO/IEC 23008-12, 9.3)."""
    version, flags = _number(data, start, 1), _number(data, start + 1, 3)
    wide, at = 2 if flags & 1 else 1, start + 8
    for _ in range(min(_number(data, start + 4, 4), _MAX_ITEMS)):
        length = 2 if version < 1 else 4
        number, count = _number(data, at, length), _number(data, at + length, 1)
        at += length + 1
        if at + count * wide > end:
            return []
        if number == item:
            mask = 0x7FFF if wide == 2 else 0x7F  # the highest bit says whether a reader must know it
            return [_number(data, at + place * wide, wide) & mask for place in range(count)]
        at += count * wide
    return []


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")
