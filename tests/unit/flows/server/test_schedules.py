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
from prefect.blocks.system import Secret
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import IntervalSchedule

from shardmill.flows.server.alarm.problems import problem_of
from shardmill.flows.server.automations import heal_schedules
from shardmill.flows.server.deployments import SCHEDULED_FLOWS
from shardmill.flows.server.schedules import (
    Schedule,
    all_schedules,
    remove_schedules,
    set_active,
    set_schedule,
)


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
        self.secrets: dict[str, Any] = {}
        self._next_id = count()

    def keep(self, flow: str, slug: str, dataset: str) -> None:
        """Keep an hourly schedule as an earlier release did."""
        when = IntervalSchedule(interval=timedelta(hours=1))
        self._add(flow, slug=slug, parameters={"dataset": dataset}, schedule=when, active=True)

    def _add(self, deployment: str, **values: Any) -> SimpleNamespace:
        slugs = [one.slug for one in self.schedules[deployment]]
        if not self.accepts or values["slug"] in slugs:
            raise httpx.ConnectError("500 Internal Server Error")
        one = SimpleNamespace(id=next(self._next_id), **values)
        self.schedules[deployment].append(one)
        return one

    def read_deployment_by_name(self, name: str) -> SimpleNamespace:
        flow = name.partition("/")[0]
        return SimpleNamespace(id=flow, schedules=list(self.schedules[flow]))

    def create_deployment_schedules(
        self, deployment: str, wanted: list[DeploymentScheduleCreate]
    ) -> list[SimpleNamespace]:
        return [self._add(deployment, **{name: getattr(one, name) for name in _FIELDS}) for one in wanted]

    def update_deployment_schedule(self, deployment: str, schedule_id: int, **values: Any) -> None:
        if not self.accepts:
            raise httpx.ConnectError("away")
        (stored,) = [one for one in self.schedules[deployment] if one.id == schedule_id]
        stored.__dict__.update({"parameters": {}, **values})  # as Prefect's server does

    def delete_deployment_schedule(self, deployment: str, schedule_id: int) -> None:
        self.schedules[deployment] = [one for one in self.schedules[deployment] if one.id != schedule_id]

    def request(self, _: str, path: str, json: dict[str, Any]) -> httpx.Response:
        """Return no inboxes, and the blocks that keep secrets."""
        blocks = [{"id": name, "name": name, "data": {"value": self.secrets[name]}} for name in self.secrets]
        found = blocks if path == "/block_documents/filter" and not json["offset"] else []
        return httpx.Response(200, json=found, request=httpx.Request("POST", "http://prefect"))

    def delete_block_document(self, name: str) -> None:
        del self.secrets[name]

    def empty(self) -> None:
        """Empty the parameters of all schedules, as Prefect's command to pause does."""
        for stored in (one for flow in self.schedules.values() for one in flow):
            stored.parameters = {}

    def read_flow_runs(self, **_: object) -> list[object]:
        return []


_FIELDS = ("slug", "parameters", "schedule", "active")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    found = Api()

    @contextmanager
    def client(**_: object) -> Iterator[Api]:
        yield found

    def save(secret: Secret[Any], name: str, *, overwrite: bool) -> None:
        assert overwrite
        found.secrets[name] = secret.get()

    monkeypatch.setattr("prefect.client.orchestration.get_client", client)
    monkeypatch.setattr(Secret, "save", save)
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
    assert [one.is_active for one in all_schedules()] == [True, False, True, True], "it was paused"
    assert remove_schedules("photos", "weekly") == 1
    assert remove_schedules("photos") == 2
    assert listed() == [("photos--nightly", "", "every 1 h")]


def test_a_paused_schedule_keeps_its_parameters(api: Api) -> None:
    set_schedule(hourly("photos", "nightly"))
    assert set_active("photos", "nightly", active=False) == 1
    assert set_active("photos", "nightly", active=True) == 1
    assert [one.parameters for one in all_schedules()] == [{"dataset": "photos"}]


def test_a_schedule_without_parameters_is_found_by_its_slug_and_said_to_be_broken(api: Api) -> None:
    set_schedule(hourly("photos", "nightly"))
    api.keep("pipeline", "photos--weekly", "photos")
    api.empty()
    assert listed() == [("photos", "nightly", "every 1 h"), ("photos", "weekly", "every 1 h")]
    nightly, weekly = all_schedules()
    assert isinstance(nightly, Schedule)
    assert isinstance(weekly, Schedule)
    assert (nightly.parameters, nightly.problem) == ({"dataset": "photos"}, "")
    assert (weekly.parameters, weekly.problem) == ({}, "it has lost its parameters")


def test_schedules_that_prefect_emptied_get_their_parameters_back(api: Api) -> None:
    set_schedule(hourly("photos", "nightly"))
    api.keep("pipeline", "photos--weekly", "photos")  # of an earlier release: kept from the first look on
    api.schedules["train"] = []
    client: Any = api
    heal_schedules(client)
    api.schedules["prepare"][0].active = False
    api.empty()
    assert [one.parameters for one in heal_schedules(client)] == [{"dataset": "photos"}] * 2
    (nightly,), (weekly,) = api.schedules["prepare"], api.schedules["pipeline"]
    assert (nightly.parameters, nightly.active) == ({"dataset": "photos"}, False)
    assert (weekly.parameters, weekly.active) == ({"dataset": "photos"}, True)
    remove_schedules("photos")
    heal_schedules(client)
    assert api.secrets == {}


def test_the_remedy_for_a_broken_schedule_sets_it_again(api: Api) -> None:
    api.keep("pipeline", "photos:weekly", "photos")
    api.schedules["train"] = []
    api.empty()
    client: Any = api
    (broken,) = heal_schedules(client)
    problem = problem_of(broken)
    assert problem.text == "the schedule weekly of photos has lost its parameters"
    command = "shardmill schedule add SOURCE --dataset photos --train --name weekly --every 3600s"
    assert problem.remedy == f"set it again: {command}"


@pytest.mark.parametrize("flow", ["prepare", "pipeline"])
def test_editing_a_paused_schedule_leaves_it_paused(api: Api, flow: str) -> None:
    assert set_schedule(hourly("photos"))
    set_active("photos", None, active=False)
    assert not set_schedule(hourly("photos", flow=flow, hours=2))
    assert [(one.flow, one.is_active) for one in all_schedules()] == [(flow, False)]


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
