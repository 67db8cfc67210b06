"""When clocks are changed, nightly schedules run once and hourly ones each hour, by Prefect's own dates."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from prefect.server.schemas.schedules import CronSchedule

from shardmill.flows.scheduling.daylight_saving import by_elapsed_time

BERLIN, ADELAIDE = "Europe/Berlin", "Australia/Adelaide"
SPRING, AUTUMN, PLAIN = (2027, 3, 28), (2027, 10, 31), (2027, 6, 1)
ADELAIDE_SPRING, ADELAIDE_AUTUMN = (2027, 10, 3), (2027, 4, 4)


def runs_on(day: tuple[int, int, int], cron: str, timezone: str) -> list[datetime]:
    """The runs of a local day that Prefect's scheduler plans, which looks ahead again and again."""
    begins = datetime(*day, tzinfo=ZoneInfo(timezone)).astimezone(UTC)
    ends = (datetime(*day, tzinfo=ZoneInfo(timezone)) + timedelta(days=1)).astimezone(UTC)
    kept_cron, kept_zone = by_elapsed_time(cron, timezone)
    schedule = CronSchedule(cron=kept_cron, timezone=kept_zone)

    async def planned() -> set[datetime]:
        found: set[datetime] = set()
        now = begins - timedelta(hours=2)
        while now < ends:
            found |= {date.astimezone(UTC) for date in await schedule.get_dates(3, now)}
            now += timedelta(minutes=10)
        return found

    return sorted(date for date in asyncio.run(planned()) if begins <= date < ends)


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 2 * * *", "0 3 * * *", "30 1 * * *", "0 0 * * *"])
@pytest.mark.parametrize("day", [SPRING, AUTUMN, PLAIN])
def test_a_nightly_schedule_runs_once(cron: str, day: tuple[int, int, int]) -> None:
    assert len(runs_on(day, cron, BERLIN)) == 1


@pytest.mark.parametrize(
    ("day", "hours", "timezone"),
    [
        (SPRING, 23, BERLIN),
        (AUTUMN, 25, BERLIN),
        (PLAIN, 24, BERLIN),
        (ADELAIDE_SPRING, 23, ADELAIDE),
        (ADELAIDE_AUTUMN, 25, ADELAIDE),
    ],
)
@pytest.mark.parametrize(("cron", "an_hour"), [("0 * * * *", 1), ("@hourly", 1), ("5-59/30 * * * *", 2)])
def test_an_hourly_schedule_runs_each_hour_at_its_minute(
    cron: str, an_hour: int, day: tuple[int, int, int], hours: int, timezone: str
) -> None:
    found = runs_on(day, cron, timezone)
    assert len(found) == hours * an_hour
    minutes = {date.astimezone(ZoneInfo(timezone)).minute for date in found}
    assert minutes == ({0} if an_hour == 1 else {5, 35})


@pytest.mark.parametrize(
    ("cron", "timezone"),
    [
        ("0 * * * 1-5", BERLIN),  # a weekday begins at midnight of its zone
        ("0 */2 * * *", BERLIN),
        ("0 * * * *", None),
        ("0 * * * *", "Asia/Kolkata"),  # never changes its clocks
        ("0 * * * *", "Australia/Lord_Howe"),  # changes them by half an hour
    ],
)
def test_other_expressions_stay_as_they_are(cron: str, timezone: str | None) -> None:
    assert by_elapsed_time(cron, timezone) == (cron, timezone)
