"""Texts and times of metadata, made fit to store, and the texts of IPTC's Information Interchange Model.

Photoshop puts datasets of IPTC (IIM 4.2) into files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

MAX_CHARACTERS = 500
_MAX_TIME_CHARACTERS = 64  # the pattern takes the square of the length of a run of spaces

_DATE = re.compile(
    r"(?P<date>\d{4}([-:/.]\d{2}){0,2})"
    r"([T ](?P<time>\d{2}:\d{2}(:\d{2})?)([.,]\d+)?\s*(?P<offset>Z|[+-]\d{2}:?\d{2})?)?\s*\Z"
)
_FULL_DATE_CHARACTERS = len("2024-05-06")
_START = datetime(1, 1, 1).isoformat()


def clean(text: bytes | str) -> str | None:
    """Return a text in one line of limited length; None if nothing is left.

    Args:
        text: bytes are UTF-8, or else Latin-1; what follows a zero byte is another part of the text.
    """
    decoded = _decoded(text[: 8 * MAX_CHARACTERS])
    if not decoded.isprintable():
        decoded = decoded.rstrip("\x00").replace("\x00", "; ")
        decoded = "".join(each if each.isprintable() else " " for each in decoded)
    return " ".join(decoded.split())[:MAX_CHARACTERS].strip(" ;") or None


def iso_time(text: str | None, offset: str | None = None) -> str | None:
    """Return a time as ISO 8601, as exactly as it is given; None if there is none.

    The time is the one that the camera's clock showed. Its distance from UTC stands behind it only if the
    file tells it. Fractions of a second are left out.

    Args:
        text: a time of EXIF ("2024:05:06 07:08:09"), XMP or IPTC; XMP may have only a year, or only a date.
        offset: distance of the time from UTC ("+02:00"), if it is not in the text.
    """
    found = _DATE.match(text.strip()[:_MAX_TIME_CHARACTERS]) if text else None
    if found is None:
        return None
    date = re.sub(r"[:/.]", "-", found["date"])
    time = found["time"] if found["time"] and len(date) == _FULL_DATE_CHARACTERS else None
    moment = f"{date}T{time}" if time else date
    try:
        datetime.fromisoformat(moment + _START[len(moment) :])
    except ValueError:
        return None  # such as 0000-00-00, which some cameras write for an unset clock
    if time is None:
        return moment
    moment = moment if time.count(":") == 2 else f"{moment}:00"
    return moment + _offset(found["offset"] or (offset or "").strip())


def _decoded(text: bytes | str) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("latin-1")


def _offset(text: str) -> str:
    if text in ("Z", "z"):
        return "+00:00"
    found = re.fullmatch(r"([+-])([01]\d):?([0-5]\d)", text)
    return f"{found[1]}{found[2]}:{found[3]}" if found else ""


IPTC_BY_LINE: Final = 80
IPTC_CREDIT: Final = 110
IPTC_COPYRIGHT: Final = 116

_WANTED = frozenset({IPTC_BY_LINE, IPTC_CREDIT, IPTC_COPYRIGHT})
_RESOURCE_OF_IPTC = 0x0404
_APPLICATION_RECORD = 2
_MAX_DATASETS = 1_000


def read_iptc(data: bytes) -> dict[int, str]:
    """Return the texts of the wanted datasets: number -> text; a repeated one is joined by "; "."""
    found: dict[int, list[str]] = {}
    for number, value in _datasets(data):
        if number in _WANTED and (text := clean(value)):
            found.setdefault(number, []).append(text)
    return {number: "; ".join(texts) for number, texts in found.items()}


def iptc_in(resources: bytes) -> bytes | None:
    """Return the IPTC block among the image resources of Photoshop, or None."""
    at = 0
    while resources[at : at + 4] == b"8BIM" and at + 12 <= len(resources):
        number = int.from_bytes(resources[at + 4 : at + 6], "big")
        name_bytes = resources[at + 6] + 1
        at += 6 + name_bytes + (name_bytes & 1)
        size = int.from_bytes(resources[at : at + 4], "big")
        if number == _RESOURCE_OF_IPTC:
            return resources[at + 4 : at + 4 + size]
        at += 4 + size + (size & 1)
    return None


def _datasets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of each dataset (entry) of the application record of an IPTC block."""
    at = 0
    for _ in range(_MAX_DATASETS):
        if at + 5 > len(data) or data[at] != 0x1C:
            return
        record, number, size = data[at + 1], data[at + 2], int.from_bytes(data[at + 3 : at + 5], "big")
        if size & 0x8000:
            return  # a value longer than 32 KiB, which no text is
        if record == _APPLICATION_RECORD:
            yield number, data[at + 5 : at + 5 + size]
        at += 5 + size
