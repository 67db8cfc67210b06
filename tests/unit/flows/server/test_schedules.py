"""Schedules in words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flows.server.schedules import Schedule


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule("prepare", "d", {}, every=timedelta(minutes=1)), "every 1 min"),
        (Schedule("prepare", "d", {}, every=timedelta(hours=1, minutes=30)), "every 1 h 30 min"),
        (Schedule("prepare", "d", {}, every=timedelta(days=7)), "every 7 d"),
        (Schedule("prepare", "d", {}, every=timedelta(seconds=90.5)), "every 1 min 30.5 s"),
        (Schedule("prepare", "d", {}, cron="0 3 * * *"), "cron 0 3 * * * (UTC)"),
        (
            Schedule("prepare", "d", {}, cron="0 3 * * *", timezone="Europe/Berlin"),
            "cron 0 3 * * * (Europe/Berlin)",
        ),
    ],
)
def test_a_schedule_says_when_it_runs(schedule: Schedule, words: str) -> None:
    assert str(schedule) == words


@pytest.mark.parametrize(("name", "slug"), [("", "photos"), ("nightly", "photos--nightly")])
def test_the_schedules_of_a_dataset_have_names(name: str, slug: str) -> None:
    assert Schedule("prepare", "photos", {}, name=name).slug == slug
