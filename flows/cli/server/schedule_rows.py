"""Print schedules and inboxes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from infra.storage.locations import public_location, public_values

if TYPE_CHECKING:
    from flows.scheduling.inboxes import Inbox
    from flows.server.schedules import Schedule


def schedule_entries(found: Sequence[Schedule | Inbox]) -> list[dict[str, Any]]:
    """The schedules as values of JSON."""
    return [
        {
            **public_values(dict(entry.parameters)),
            "flow": entry.flow,
            "dataset": entry.dataset,
            "name": entry.name,
            "when": str(entry),
            "active": entry.is_active,
            "next": _next(entry),
        }
        for entry in found
    ]


def print_schedules(found: Sequence[Schedule | Inbox]) -> None:
    """Print the schedules for people."""
    from flows.cli import output

    if not found:
        output.say("No schedules. Make one: shardmill schedule SOURCE --dataset NAME --every 1h")
        return
    rows = [
        [
            entry.flow,
            entry.dataset,
            entry.name,
            str(entry) if entry.is_active else f"{entry} (paused)",
            in_local_time(_next(entry)) if entry.is_active else "",
            public_location(entry.parameters.get("source", "")),
        ]
        for entry in found
    ]
    output.print_table("Schedules", ["flow", "dataset", "name", "when", "next", "source"], rows)


def in_local_time(moment: str | float | None) -> str:
    """A moment (ISO 8601, or seconds since 1970) in the time zone of this machine."""
    if not moment:
        return ""
    at = (
        datetime.fromisoformat(moment)
        if isinstance(moment, str)
        else datetime.fromtimestamp(moment).astimezone()
    )
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _next(entry: Schedule | Inbox) -> str | None:
    at = getattr(entry, "next_at", None)
    return None if at is None else str(at.isoformat())
