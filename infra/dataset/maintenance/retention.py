"""Choose the versions of a dataset that are no longer to be kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta


def outdated_versions(
    created: Mapping[int, datetime],
    *,
    keep_last: int | None,
    keep_days: float | None,
    protected: Collection[int],
    now: datetime,
) -> list[int]:
    """The versions that no rule keeps, in ascending order.

    Args:
        created: when each version was published.
        keep_last: keeps so many of the newest; None is no rule.
        keep_days: keeps those that are not older; None is no rule.
        protected: versions that are kept anyway. The newest is kept too.
        now: the time from which ages count.
    """
    if keep_last is None and keep_days is None:
        return []
    versions = sorted(created)
    kept = {*protected, *versions[-max(keep_last or 1, 1) :]}
    if keep_days is not None:
        kept |= {number for number in versions if now - created[number] <= timedelta(days=keep_days)}
    return [number for number in versions if number not in kept]
