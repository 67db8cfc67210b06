"""Read some properties of an XMP packet (ISO 16684-1): RDF in XML.

A property is an attribute or an element of a Description; its value is text, an address, or a list of texts.
Document types are refused, since entities of XML could make a short packet endless. What stands before a
fault counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from xml.parsers import expat

RIGHTS: Final = "http://purl.org/dc/elements/1.1/ rights"
CREATOR: Final = "http://purl.org/dc/elements/1.1/ creator"
WEB_STATEMENT: Final = "http://ns.adobe.com/xap/1.0/rights/ WebStatement"
USAGE_TERMS: Final = "http://ns.adobe.com/xap/1.0/rights/ UsageTerms"
CREDIT: Final = "http://ns.adobe.com/photoshop/1.0/ Credit"
DATE_CREATED: Final = "http://ns.adobe.com/photoshop/1.0/ DateCreated"
TAKEN_AT: Final = "http://ns.adobe.com/exif/1.0/ DateTimeOriginal"
LATITUDE: Final = "http://ns.adobe.com/exif/1.0/ GPSLatitude"
MAKE: Final = "http://ns.adobe.com/tiff/1.0/ Make"
MODEL: Final = "http://ns.adobe.com/tiff/1.0/ Model"
SOURCE_TYPE: Final = "http://iptc.org/std/Iptc4xmpExt/2008-02-29/ DigitalSourceType"
CC_LICENCE: Final = "http://creativecommons.org/ns# license"
CC_ATTRIBUTION: Final = "http://creativecommons.org/ns# attributionName"

_PROPERTIES = frozenset({
    RIGHTS, CREATOR, WEB_STATEMENT, USAGE_TERMS, CREDIT, DATE_CREATED, TAKEN_AT, LATITUDE, MAKE, MODEL,
    SOURCE_TYPE, CC_LICENCE, CC_ATTRIBUTION,
})  # fmt: skip
_NAMES = tuple(name.rpartition(" ")[2].encode() for name in _PROPERTIES)
# Older addresses of the same properties.
_OLDER = {
    "http://iptc.org/std/Iptc4xmpExt/2008-02-29/ DigitalSourcetype": SOURCE_TYPE,
    "http://web.resource.org/cc/ license": CC_LICENCE,
}
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns# "
_TOP, _DESCRIPTION, _ITEM, _RESOURCE = (_RDF + name for name in ("RDF", "Description", "li", "resource"))

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 64
_MAX_VALUES = 20

Properties = Mapping[str, str]


def read_xmp(packet: bytes) -> Properties:
    """Return the properties of a packet: property -> text; the items of a list are joined by "; ".

    Of texts in several languages, the first is returned, which is the default by the standard.
    """
    is_wide = b"\x00" in packet[:8]  # UTF-16
    if len(packet) > _MAX_BYTES or not (is_wide or any(name in packet for name in _NAMES)):
        return {}
    parser, packet_parser = expat.ParserCreate(namespace_separator=" "), _Packet()
    parser.buffer_text = True
    parser.StartElementHandler = packet_parser.start
    parser.EndElementHandler = packet_parser.end
    parser.CharacterDataHandler = packet_parser.text
    parser.StartDoctypeDeclHandler = packet_parser.refuse
    if not is_wide:
        packet = packet.strip(b"\x00 \r\n\t")  # padding
    # What was found so far stands. An unknown encoding is a LookupError.
    with suppress(expat.ExpatError, _Refused, ValueError, LookupError):
        parser.Parse(packet, True)
    return packet_parser.found


class _Refused(Exception):
    """The packet is not read further."""


class _Packet:
    """The values found in a packet, while it is parsed.

    Attributes:
        found: property -> text.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._path: list[str] = []
        self._wanted: str | None = None  # the property whose element is open
        self._depth = 0  # depth of that element
        self._values: list[str] = []
        self._parts: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= _MAX_DEPTH:
            raise _Refused
        if name == _DESCRIPTION and self._path[-1:] == [_TOP]:
            for each, value in attributes.items():
                self._keep(each, [value])
        elif self._wanted is None and self._path[-2:] == [_TOP, _DESCRIPTION]:
            self._open(name, attributes)
        elif name == _ITEM:
            self._parts.clear()
        self._path.append(name)

    def end(self, name: str) -> None:
        self._path.pop()
        if self._wanted is None:
            return
        closes = len(self._path) == self._depth
        if name == _ITEM or closes:  # joined at each inner tag, a long text would cost its square
            text = "".join(self._parts).strip()
            self._parts.clear()
            if text and len(self._values) < _MAX_VALUES:
                self._values.append(text)
        if closes:
            self._keep(self._wanted, self._values)
            self._wanted = None

    def text(self, data: str) -> None:
        if self._wanted is not None:
            self._parts.append(data)

    def refuse(self, *declaration: object) -> None:
        raise _Refused

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        known = _OLDER.get(name, name)
        if known in _PROPERTIES:
            self._wanted, self._depth = known, len(self._path)
            self._values = [attributes[_RESOURCE]] if _RESOURCE in attributes else []
            self._parts = []

    def _keep(self, name: str, values: list[str]) -> None:
        name = _OLDER.get(name, name)
        if name in _PROPERTIES and values:
            several = name == CREATOR
            self.found.setdefault(name, "; ".join(values) if several else values[0])
