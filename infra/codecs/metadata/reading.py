"""Read the metadata of an image file: time and camera, licence and attribution, and its making."""

from __future__ import annotations

from dataclasses import dataclass

from shardmill.infra.codecs.formats import sniff
from shardmill.infra.codecs.metadata import exif, iptc, xmp
from shardmill.infra.codecs.metadata.blocks import Blocks, find_blocks
from shardmill.infra.codecs.metadata.c2pa import declared_source_types
from shardmill.infra.codecs.metadata.exif import NO_TAGS, read_exif
from shardmill.infra.codecs.metadata.iptc import read_iptc
from shardmill.infra.codecs.metadata.text import clean, iso_time
from shardmill.infra.codecs.metadata.xmp import Properties, read_xmp

# Terms of IPTC's NewsCodes "Digital Source Type", and one of C2PA, for what generative models made.
AI_MADE = frozenset({
    "trainedAlgorithmicMedia", "compositeWithTrainedAlgorithmicMedia", "compositeSynthetic",
    "trainedAlgorithmicData",
})  # fmt: skip
_BY_LOWER = {term.lower(): term for term in AI_MADE}


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a file says of itself; None for what it does not tell.

    Attributes:
        captured_at: when the picture was taken, ISO 8601, with its distance from UTC if the file tells it.
        camera_make, camera_model: of the camera.
        gps_present: the file tells a position; which one is not read.
        c2pa_present: the file has Content Credentials (C2PA).
        digital_source_type: term of IPTC's NewsCodes, such as "trainedAlgorithmicMedia".
        licence: address or terms of a licence.
        rights: copyright notice.
        attribution: credit line.
        creator: who made it; several names are joined by "; ".
    """

    captured_at: str | None = None
    camera_make: str | None = None
    camera_model: str | None = None
    gps_present: bool | None = None
    c2pa_present: bool | None = None
    digital_source_type: str | None = None
    licence: str | None = None
    rights: str | None = None
    attribution: str | None = None
    creator: str | None = None

    @property
    def is_ai_made(self) -> bool:
        """Whether the file declares that a generative model made it, or a part of it."""
        return self.digital_source_type in AI_MADE


NOTHING = Metadata()


def read_metadata(data: bytes) -> Metadata:
    """Read what a file says of itself. Damaged metadata tell nothing; no error is raised."""
    blocks = find_blocks(data, sniff(data) or "")
    return _told(blocks) if blocks is not None else NOTHING


def _told(blocks: Blocks) -> Metadata:
    tags = read_exif(blocks.exif) if blocks.exif else NO_TAGS
    packet: Properties = read_xmp(blocks.xmp) if blocks.xmp else {}
    datasets = read_iptc(blocks.iptc) if blocks.iptc else {}
    declared = declared_source_types(blocks.c2pa) if blocks.c2pa else []

    def first(*names: str) -> str | None:
        return next((found for name in names if (found := clean(packet.get(name, "")))), None)

    return Metadata(
        captured_at=tags.taken_at
        or iso_time(packet.get(xmp.TAKEN_AT))
        or iso_time(packet.get(xmp.DATE_CREATED)),
        camera_make=tags.text(exif.MAKE) or first(xmp.MAKE),
        camera_model=tags.text(exif.MODEL) or first(xmp.MODEL),
        gps_present=tags.has_position or xmp.LATITUDE in packet,
        c2pa_present=blocks.c2pa is not None,
        digital_source_type=_source_type([*declared, packet.get(xmp.SOURCE_TYPE, "")]),
        licence=first(xmp.CC_LICENCE, xmp.WEB_STATEMENT, xmp.USAGE_TERMS),
        rights=first(xmp.RIGHTS) or tags.text(exif.COPYRIGHT) or datasets.get(iptc.COPYRIGHT),
        attribution=first(xmp.CREDIT, xmp.CC_ATTRIBUTION) or datasets.get(iptc.CREDIT),
        creator=first(xmp.CREATOR) or tags.text(exif.ARTIST) or datasets.get(iptc.BY_LINE),
    )


def _source_type(declared: list[str]) -> str | None:
    """Return the term that counts: the first for what a model made, else the first.

    Args:
        declared: addresses whose last part is a term, or terms.
    """
    terms = [clean(text.strip().rstrip("/").rpartition("/")[2].rpartition(":")[2]) for text in declared]
    known = [_BY_LOWER.get(term.lower(), term) for term in terms if term]
    return next((term for term in known if term in AI_MADE), known[0] if known else None)
