"""The scans of a JPEG (ITU-T T.81, B.2.3 and G.1): how many there are, and whether one is missing.

No decoder misses a scan. From a progressive file that holds only its first scan, libjpeg makes a picture of
blocks and does not warn. The headers of the scans tell which coefficients were sent.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardmill.infra.codecs.jpeg.segments import EOI, SOS, scan_markers

_SOS_OR_EOI = re.compile(rb"\xff[\xda\xd9]")
_ALL_COEFFICIENTS = (1 << 64) - 1  # a bit for each coefficient of a block of 8×8 pixels
# Encoders write about ten scans. The rest of a hostile file is not read.
_MOST_SCANS = 1000


@dataclass(frozen=True, slots=True)
class Scan:
    """The header of a scan.

    Attributes:
        components: identifiers of the components in the scan.
        first: first coefficient of each block that the scan holds, 0 to 63.
        last: last coefficient.
        missing_bits: number of low bits that later scans add.
    """

    components: bytes
    first: int
    last: int
    missing_bits: int


def read_scans(data: bytes, begin: int, components: bytes, progressive: bool) -> tuple[int, bool]:
    """Count the scans, and tell whether they hold each coefficient of each component to its last bit.

    Args:
        data: a JPEG.
        begin: position of the first SOS marker.
        components: identifiers of the components, from the frame header.
        progressive: scans hold parts of coefficients; else they hold their components whole.

    Returns:
        The number of scans, and whether none is missing.
    """
    # Searching for two bytes is ten times as fast as following all markers. It can only miss scans: those
    # behind a table or comment that happens to contain an end mark.
    scans = _scans_at(data, _positions(data, begin))
    if _complete(scans, components, progressive):
        return len(scans), True
    markers = scan_markers(data, begin + 2 + int.from_bytes(data[begin + 2 : begin + 4], "big"))
    later = (position for marker, position in markers if marker == SOS)
    scans = _scans_at(data, itertools.chain((begin,), later))
    return len(scans), _complete(scans, components, progressive)


def _positions(data: bytes, begin: int) -> Iterator[int]:
    for found in _SOS_OR_EOI.finditer(data, begin):
        if found[0] == EOI:
            return
        yield found.start()


def _scans_at(data: bytes, positions: Iterable[int]) -> list[Scan]:
    scans = []
    for position in itertools.islice(positions, _MOST_SCANS):
        content = data[position + 4 : position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")]
        if content and len(content) == 4 + 2 * content[0]:
            first, last, bits = content[-3:]
            scans.append(Scan(content[1:-3:2], first, last, bits & 15))
    return scans


def _complete(scans: Iterable[Scan], components: bytes, progressive: bool) -> bool:
    if not progressive:
        return set(components) <= {name for scan in scans for name in scan.components}
    missing = dict.fromkeys(components, _ALL_COEFFICIENTS)
    for scan in scans:
        if scan.missing_bits == 0 and scan.first <= scan.last:
            band = (1 << (scan.last + 1)) - (1 << scan.first)
            for name in scan.components:
                missing[name] = missing.get(name, 0) & ~band
    return not any(missing.values())
