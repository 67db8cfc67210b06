"""Schedules and inboxes of the deployments: set, list, pause and remove them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from shardmill.flows.flow_runs.api_requests import in_states, prefect_client, run_filter
from shardmill.flows.scheduling.daylight_saving import by_elapsed_time
from shardmill.flows.server.automations import (
    NO_PARAMETERS,
    StoredSchedule,
    give_back,
    keep_parameters,
    stored_schedules,
)
from shardmill.flows.server.deployments import SCHEDULED_FLOWS, read_deployment
from shardmill.infra.errors import UsageError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

    from shardmill.flows.scheduling.inboxes import Inbox

# Stands in a slug between a dataset and the name of one of its schedules. Neither contains it.
_BETWEEN = ":"
# In its place in the slugs of earlier releases, which left it out before an empty name.
_EARLIER_BETWEEN = "--"
_PAGE, _PAGES = 200, 10  # size and number of pages of planned runs


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: a flow, the times at which it runs, and its parameters.

    Attributes:
        flow: "prepare", "pipeline" or "maintain".
        dataset: the dataset that it works on.
        parameters: parameters of the flow.
        name: tells the schedules of a dataset apart; empty for the one without a name.
        cron: a cron expression, or None.
        every: an interval, or None.
        timezone: time zone of the cron expression; None is UTC.
        is_active: False while it is paused.
        next_at: the time of its next run; None: none is planned, or it was not looked up.
        problem: why it cannot run; empty: it can.
    """

    flow: str
    dataset: str
    parameters: Mapping[str, Any]
    name: str = ""
    cron: str | None = None
    every: timedelta | None = None
    timezone: str | None = None
    is_active: bool = True
    next_at: datetime | None = None
    problem: str = ""

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {_interval_in_words(self.every)}"
        return f"cron {self.cron} ({self.timezone or 'UTC'})"

    @property
    def slug(self) -> str:
        """Its name in Prefect, unique within a deployment."""
        return f"{self.dataset}{_BETWEEN}{self.name}"


def _interval_in_words(interval: timedelta) -> str:
    """Return an interval in words, such as ``1 d``, ``1 h 30 min`` or ``90.5 s``."""
    rest, words = interval.total_seconds(), []
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
        count, rest = divmod(rest, seconds)
        if count:
            words.append(f"{count:.0f} {unit}")
    return " ".join([*words, *([f"{rest:g} s"] if rest or not words else [])])


def set_schedule(schedule: Schedule) -> bool:
    """Create a schedule in the place of the schedule or inbox of the same dataset and name.

    If Prefect does not take the new one, the old one stays. In the place of a paused one, it is paused.

    Returns:
        Whether it is active.

    Raises:
        UsageError: Prefect does not accept the cron expression or the time zone.
    """
    from prefect.client.schemas.actions import DeploymentScheduleCreate

    when, parameters = _when(schedule), dict(schedule.parameters)
    with _client() as client:
        deployment = read_deployment(client, schedule.flow).id
        old = _schedules_of(client, schedule.dataset, schedule.name)
        is_active = _is_active(old, _inboxes(client, schedule.dataset, schedule.name))
        same_flow = next((one for one in old if one.flow == schedule.flow), None)
        if same_flow is None:
            wanted = DeploymentScheduleCreate(
                schedule=when, slug=schedule.slug, parameters=parameters, active=is_active
            )
            (stored,) = client.create_deployment_schedules(deployment, [wanted])
        else:
            stored = same_flow.stored
            client.update_deployment_schedule(
                deployment,
                stored.id,
                schedule=when,
                slug=schedule.slug,
                parameters=parameters,
                active=is_active,
            )
        keep_parameters(stored.id, parameters)
        _remove_schedules(client, [one for one in old if one is not same_flow])
        _remove_inboxes(client, schedule.dataset, schedule.name)
    return is_active


def set_inbox(inbox: Inbox) -> bool:
    """Watch an inbox in the place of the schedule or inbox of the same dataset and name.

    Returns:
        Whether it is active: in the place of a paused one, it is paused.
    """
    from shardmill.flows.scheduling import inboxes

    with _client() as client:
        read_deployment(client, inbox.flow)
        old = _schedules_of(client, inbox.dataset, inbox.name)
        is_active = _is_active(old, _inboxes(client, inbox.dataset, inbox.name))
        inboxes.set_inbox(client, replace(inbox, is_active=is_active))
        _remove_schedules(client, old)
    return is_active


def _is_active(schedules: Sequence[StoredSchedule], inboxes: Sequence[Inbox]) -> bool:
    """Tell whether their successor is active: it is, unless all of them are paused."""
    active = [bool(one.stored.active) for one in schedules] + [one.is_active for one in inboxes]
    return any(active) or not active


def remove_schedules(dataset: str, name: str | None = None) -> int:
    """Remove the schedules and inboxes of a dataset, or the one of a name; return their number."""
    with _client() as client:
        found = _remove_schedules(client, _schedules_of(client, dataset, name))
        return found + _remove_inboxes(client, dataset, name)


def set_active(dataset: str, name: str | None, *, active: bool) -> int:
    """Pause or resume the schedules and inboxes of a dataset, or the one of a name; return their number."""
    from shardmill.flows.scheduling import inboxes

    with _client() as client:
        found = _schedules_of(client, dataset, name)
        for one in found:
            give_back(client, one, active=active)
        watched = _inboxes(client, dataset, name)
        for inbox in watched:
            inboxes.set_inbox(client, replace(inbox, is_active=active))
    return len(found) + len(watched)


def all_schedules() -> list[Schedule | Inbox]:
    """Return all schedules, with the times of their next runs, and all inboxes, by dataset and name."""
    from shardmill.flows.scheduling import inboxes

    with _client() as client:
        found = stored_schedules(client, *SCHEDULED_FLOWS)
        times = _next_times(client)
        watched = inboxes.read_inboxes(client)
    scheduled = [as_schedule(one, times.get(str(one.stored.id))) for one in found]
    return sorted([*scheduled, *watched], key=lambda entry: (entry.dataset, entry.name))


def _remove_schedules(client: SyncPrefectClient, found: Sequence[StoredSchedule]) -> int:
    for one in found:
        client.delete_deployment_schedule(one.deployment_id, one.stored.id)
    return len(found)


def _remove_inboxes(client: SyncPrefectClient, dataset: str, name: str | None) -> int:
    from shardmill.flows.scheduling import inboxes

    found = _inboxes(client, dataset, name)
    for inbox in found:
        inboxes.remove_inbox(client, inbox)
    return len(found)


def _inboxes(client: SyncPrefectClient, dataset: str, name: str | None) -> list[Inbox]:
    from shardmill.flows.scheduling import inboxes

    found = inboxes.read_inboxes(client)
    return [inbox for inbox in found if inbox.dataset == dataset and name in (None, inbox.name)]


@contextmanager
def _client() -> Iterator[SyncPrefectClient]:
    with prefect_client() as client:
        yield client


def as_schedule(one: StoredSchedule, next_at: datetime | None = None) -> Schedule:
    """A schedule of Prefect in the words of Shardmill."""
    when = one.stored.schedule
    return Schedule(
        flow=one.flow,
        dataset=_dataset(one),
        parameters=one.parameters,
        name=_name(one),
        cron=getattr(when, "cron", None),
        every=getattr(when, "interval", None),
        timezone=getattr(when, "timezone", None),
        is_active=bool(one.stored.active),
        next_at=next_at,
        problem="" if one.parameters else NO_PARAMETERS,
    )


def _dataset(one: StoredSchedule) -> str:
    slug = str(one.stored.slug or "")
    between = _BETWEEN if _BETWEEN in slug else _EARLIER_BETWEEN
    return str(one.parameters.get("dataset") or slug.partition(between)[0])


def _name(one: StoredSchedule) -> str:
    slug = str(one.stored.slug or "")
    return slug.removeprefix(_dataset(one)).removeprefix(_BETWEEN).removeprefix(_EARLIER_BETWEEN)


def _schedules_of(client: SyncPrefectClient, dataset: str, name: str | None) -> list[StoredSchedule]:
    """Return the schedules of a dataset, or the one of a name."""
    found = [one for one in stored_schedules(client, *SCHEDULED_FLOWS) if _dataset(one) == dataset]
    return [one for one in found if name in (None, _name(one))]


def _next_times(client: SyncPrefectClient) -> dict[str, datetime]:
    """Return the time of the next run of each schedule, by the id of the schedule."""
    from prefect.client.schemas.sorting import FlowRunSort

    planned = run_filter(state=in_states("SCHEDULED"))
    times: dict[str, datetime] = {}
    for page in range(_PAGES):
        runs = client.read_flow_runs(
            flow_run_filter=planned,
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
            limit=_PAGE,
            offset=page * _PAGE,
        )
        for run in runs:
            parts = (run.idempotency_key or "").split()  # "scheduled DEPLOYMENT SCHEDULE TIME"
            if len(parts) > 2 and run.expected_start_time is not None:
                times.setdefault(parts[2], run.expected_start_time)
        if len(runs) < _PAGE:
            break
    return times


def _when(schedule: Schedule) -> CronSchedule | IntervalSchedule:
    from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
    from pydantic import ValidationError

    if schedule.cron is None:
        assert schedule.every is not None
        return IntervalSchedule(interval=schedule.every)
    try:
        CronSchedule(cron=schedule.cron, timezone=schedule.timezone)  # its error names what was given
        cron, timezone = by_elapsed_time(schedule.cron, schedule.timezone)
        return CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        problem = error.errors()[0]
        raise UsageError(
            f"--{problem['loc'][0]} {problem['input']!r}: not valid",
            'for example --cron "0 3 * * *" --timezone UTC',
        ) from error
