"""Read the response headers by which a server forbids some uses of its images.

``X-Robots-Tag`` (https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag) holds
directives, of which some may be for one robot only: ``otherbot: noindex``. ``TDM-Reservation: 1`` reserves
text and data mining (https://www.w3.org/community/reports/tdmrep/CG-FINAL-tdmrep-20240510/).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

ROBOT = "shardmill"  # our name in headers that are for some robots only
TDM = "tdm-reservation"

# Directives that have a value behind a colon, and so look like the name of a robot.
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


def opted_out_by(headers: Iterable[tuple[str, str]], honoured: Collection[str]) -> str | None:
    """Return the header that reserves a response, for people, or None if none does.

    Args:
        headers: (name, value) of the response.
        honoured: directives in lower case; ``tdm-reservation`` for that header.
    """
    for name, value in headers:
        if name.lower() == "x-robots-tag":
            for directive in _directives(value):
                if directive in honoured:
                    return f"X-Robots-Tag: {directive}"
        elif name.lower() == TDM and TDM in honoured and value.strip() == "1":
            return "TDM-Reservation: 1"
    return None


def _directives(value: str) -> Iterable[str]:
    """Yield the directives of a header that are for all robots or for this one, in lower case."""
    is_for_us = True
    for part in value.lower().split(","):
        name, colon, rest = part.partition(":")
        if colon and name.strip() not in _WITH_VALUE:
            is_for_us, part = name.strip() == ROBOT, rest  # and for all directives behind it
        if is_for_us:
            yield part.strip()
