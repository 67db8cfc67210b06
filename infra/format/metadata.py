"""Features that hold what image files say of themselves: ``image.metadata`` of prepare chooses among them.

====================  =====  ============================================================================
captured_at           text   when the picture was taken, ISO 8601: the time of the camera's clock, and
                             behind it its distance from UTC if the file tells it
camera_make           text
camera_model          text
gps_present           int64  1 if the file tells a position, else 0; the position itself is not stored
c2pa_present          int64  1 if the file has Content Credentials (C2PA), else 0; not verified
digital_source_type   text   term of IPTC's NewsCodes, such as trainedAlgorithmicMedia
licence               text   address or terms of the licence
rights                text   copyright notice
attribution           text   credit line
creator               text   who made it
====================  =====  ============================================================================

A record lacks the features that its file does not tell.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from shardmill.infra.format.features import Feature

MetadataName = Literal[
    "captured_at", "camera_make", "camera_model", "gps_present", "c2pa_present", "digital_source_type",
    "licence", "rights", "attribution", "creator",
]  # fmt: skip
METADATA_NAMES: Final[tuple[MetadataName, ...]] = get_args(MetadataName)
_ARE_TRUTHS = ("gps_present", "c2pa_present")

METADATA_FEATURES: Final[dict[MetadataName, Feature]] = {
    name: Feature(name=name, dtype="int64")
    if name in _ARE_TRUTHS
    else Feature(name=name, dtype="bytes", is_text=True)
    for name in METADATA_NAMES
}
