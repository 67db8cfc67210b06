"""Schedules in words, and those that Prefect keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import IntervalSchedule

from flows.server.deployments import SCHEDULED_FLOWS
from flows.server.schedules import Schedule, all_schedules, remove_schedules, set_active, set_schedule


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


@pytest.mark.parametrize(("name", "slug"), [("", "photos:"), ("nightly", "photos:nightly")])
def test_the_schedules_of_a_dataset_have_names(name: str, slug: str) -> None:
    assert Schedule("prepare", "photos", {}, name=name).slug == slug


class Api:
    """A Prefect API that keeps schedules, in the place of its client. Deployments have the ids of flows."""

    def __init__(self) -> None:
        self.schedules: dict[str, list[SimpleNamespace]] = {flow: [] for flow in SCHEDULED_FLOWS}
        self.accepts = True
        self._next_id = count()

    def keep(self, flow: str, slug: str, dataset: str) -> None:
        """Keep an hourly schedule as an earlier release did."""
        when = IntervalSchedule(interval=timedelta(hours=1))
        self._add(flow, slug=slug, parameters={"dataset": dataset}, schedule=when, active=True)

    def _add(self, deployment: str, **values: Any) -> None:
        slugs = [one.slug for one in self.schedules[deployment]]
        if not self.accepts or values["slug"] in slugs:
            raise httpx.ConnectError("500 Internal Server Error")
        self.schedules[deployment].append(SimpleNamespace(id=next(self._next_id), **values))

    def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        flow = name.partition("/")[0]
        return SimpleNamespace(id=flow, schedules=list(self.schedules[flow]))

    def create_deployment_schedules(self, deployment: str, wanted: list[DeploymentScheduleCreate]) -> None:
        for one in wanted:
            self._add(deployment, **{name: getattr(one, name) for name in _FIELDS})

    def update_deployment_schedule(self, deployment: str, schedule_id: int, **values: Any) -> None:
        if not self.accepts:
            raise httpx.ConnectError("away")
        (stored,) = [one for one in self.schedules[deployment] if one.id == schedule_id]
        stored.__dict__.update({"parameters": {}, **values})  # as Prefect's server does

    def delete_deployment_schedule(self, deployment: str, schedule_id: int) -> None:
        self.schedules[deployment] = [one for one in self.schedules[deployment] if one.id != schedule_id]

    def request(self, *_: object, **__: object) -> httpx.Response:
        """Return no inboxes."""
        return httpx.Response(200, json=[], request=httpx.Request("POST", "http://prefect"))

    def read_flow_runs(self, **_: object) -> list[object]:
        return []


_FIELDS = ("slug", "parameters", "schedule", "active")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    found = Api()

    @contextmanager
    def client(**_: object) -> Iterator[Api]:
        yield found

    monkeypatch.setattr("prefect.client.orchestration.get_client", client)
    return found


def hourly(dataset: str, name: str = "", flow: str = "prepare", hours: int = 1) -> Schedule:
    return Schedule(flow, dataset, {"dataset": dataset}, name=name, every=timedelta(hours=hours))


def listed() -> list[tuple[str, str, str]]:
    return [(one.dataset, one.name, str(one)) for one in all_schedules()]


def test_names_of_datasets_and_schedules_do_not_collide(api: Api) -> None:
    set_schedule(hourly("photos--nightly"))
    set_schedule(hourly("photos", "nightly"))
    assert listed() == [("photos", "nightly", "every 1 h"), ("photos--nightly", "", "every 1 h")]
    assert remove_schedules("photos", "nightly") == 1
    assert listed() == [("photos--nightly", "", "every 1 h")]


def test_schedules_of_earlier_releases_are_found_paused_replaced_and_removed(api: Api) -> None:
    api.keep("prepare", "photos--nightly", "photos")
    api.keep("pipeline", "photos--weekly", "photos")
    api.keep("prepare", "photos", "photos")
    api.keep("maintain", "photos--nightly", "photos--nightly")
    set_schedule(hourly("photos--nightly"))  # an earlier release refused it
    assert set_active("photos", "nightly", active=False) == 1
    assert [one.is_active for one in all_schedules()] == [True, False, True, True]
    set_schedule(hourly("photos", "nightly", hours=2))
    assert listed() == [
        ("photos", "", "every 1 h"),
        ("photos", "nightly", "every 2 h"),
        ("photos", "weekly", "every 1 h"),
        ("photos--nightly", "", "every 1 h"),
    ]
    assert all(one.is_active for one in all_schedules())
    assert remove_schedules("photos", "weekly") == 1
    assert remove_schedules("photos") == 2
    assert listed() == [("photos--nightly", "", "every 1 h")]


def test_a_paused_schedule_keeps_its_parameters(api: Api) -> None:
    set_schedule(hourly("photos", "nightly"))
    assert set_active("photos", "nightly", active=False) == 1
    assert set_active("photos", "nightly", active=True) == 1
    assert [one.parameters for one in all_schedules()] == [{"dataset": "photos"}]


def test_a_schedule_without_parameters_is_found_by_its_slug(api: Api) -> None:
    set_schedule(hourly("photos", "nightly"))
    api.keep("pipeline", "photos--weekly", "photos")
    for stored in (*api.schedules["prepare"], *api.schedules["pipeline"]):
        stored.parameters = {}
    assert listed() == [("photos", "nightly", "every 1 h"), ("photos", "weekly", "every 1 h")]


@pytest.mark.parametrize("flow", ["prepare", "pipeline"])
def test_a_schedule_that_cannot_be_replaced_stays(api: Api, flow: str) -> None:
    set_schedule(hourly("photos"))
    api.accepts = False
    with pytest.raises(httpx.HTTPError):
        set_schedule(hourly("photos", flow=flow, hours=2))
    assert listed() == [("photos", "", "every 1 h")]
    api.accepts = True
    set_schedule(hourly("photos", flow=flow, hours=2))
    assert [(one.flow, str(one)) for one in all_schedules()] == [(flow, "every 2 h")]
