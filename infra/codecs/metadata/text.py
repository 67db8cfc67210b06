"""Texts and times of metadata, made fit to store."""

from __future__ import annotations

import re
from datetime import datetime

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
