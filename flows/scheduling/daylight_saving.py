"""Keep hourly cron expressions hourly on the days when clocks are changed.

Prefect reads a cron expression by the clock on the wall. That suits a nightly time: in Europe/Berlin,
`30 2 * * *` runs once on the day without 2:30 (at 1:30) and once on the day with two of them (at the first).
But `0 * * * *` would pause for two hours in autumn. In UTC it runs each hour: 23 times in spring, 25 in
autumn.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

_EVERY_HOUR = {"*", "*/1", "0-23"}
_EVERY_DAY = {"*", "?", "*/1"}
_RANGE = re.compile(r"(\*|\d+(?:-\d+)?)(?:/(\d+))?")
_MINUTES = 60


def by_elapsed_time(cron: str, timezone: str | None) -> tuple[str, str | None]:
    """Return an expression and time zone that fire each hour if ``cron`` means each hour of each day.

    Args:
        cron: a valid cron expression.
        timezone: its time zone; None is UTC.

    Returns:
        The same hours in UTC; the arguments unchanged if the expression names hours or days, or if the zone
        never changes its clocks, or changes them by a part of an hour.
    """
    fields = ("0 * * * *" if cron.strip() == "@hourly" else cron).split()
    if timezone is None or len(fields) != 5 or fields[1] not in _EVERY_HOUR:
        return cron, timezone
    offsets = _offset_minutes(ZoneInfo(timezone))
    shifts = {offset % _MINUTES for offset in offsets}
    minutes = _minutes(fields[0])
    if len(offsets) == 1 or len(shifts) > 1 or minutes is None or not _EVERY_DAY.issuperset(fields[2:]):
        return cron, timezone
    (shift,) = shifts
    if shift == 0:
        return " ".join(fields), "UTC"
    in_utc = sorted((minute - shift) % _MINUTES for minute in minutes)
    return f"{','.join(map(str, in_utc))} * * * *", "UTC"


def _offset_minutes(zone: ZoneInfo) -> set[int]:
    """The offsets from UTC that a zone has in this year and the next (minutes)."""
    year = datetime.now(UTC).year
    days = [datetime(each, month, 15, 12, tzinfo=zone) for each in (year, year + 1) for month in range(1, 13)]
    return {int((day.utcoffset() or day - day).total_seconds() // _MINUTES) for day in days}


def _minutes(field: str) -> set[int] | None:
    """The minutes of the first field of a cron expression; None if it is of another form."""
    found: set[int] = set()
    for part in field.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        first, _, last = match[1].partition("-")
        step = int(match[2] or 1)
        if first == "*":
            first, last = "0", "59"
        elif not last:
            last = "59" if match[2] else first
        found |= set(range(int(first), int(last) + 1, step))
    return found
