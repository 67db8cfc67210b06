"""Find ended runs, published versions and failing sources on the server, and write messages about them.

A file keeps what was seen, so nothing is told twice, and what happens while nobody looks is told later.
Prefect may write the end of a run, or an event, a while after its time; so each look goes back some minutes
further.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from shardmill.flows.flow_runs.api_requests import ENDED, all_pages, run_filter
from shardmill.flows.flow_runs.events import OPEN, TRAINING
from shardmill.flows.flow_runs.events import PUBLISHED as VERSION_PUBLISHED
from shardmill.flows.flow_runs.run_records import UNCHANGED as UNCHANGED_STATE
from shardmill.flows.scheduling.attempts import STILL_FAILING
from shardmill.flows.scheduling.coalescing import SKIPPED
from shardmill.flows.scheduling.failures import POSTPONED
from shardmill.flows.server.alarm import outbox
from shardmill.flows.server.alarm.destinations import (
    COMPLETED,
    FAILED,
    FAILING,
    PUBLISHED,
    RECOVERED,
    UNCHANGED,
    Destination,
    Message,
)
from shardmill.flows.server.alarm.outbox import KeptFile
from shardmill.infra.digests import digest_of

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

# An event of a client that lost its connection may be written so much later.
_LATE_SECONDS = 900.0
_PAGE = 50  # the server gives no more events at once
_EVENTS = {
    VERSION_PUBLISHED: PUBLISHED,
    "shardmill.source.failing": FAILING,
    "shardmill.source.recovered": RECOVERED,
}


@dataclass(frozen=True, slots=True)
class Happening:
    """An ended run or another event that people are told.

    Attributes:
        key: identifies it, the same each time it is read.
        message: text that people get.
        is_in_end: whether the message about the end of its run already contains this one.
    """

    key: str
    message: Message
    is_in_end: bool = False

    def concerns(self, destination: Destination) -> bool:
        """Tell whether a destination gets the message."""
        if self.is_in_end and COMPLETED in destination.on:
            return False
        return destination.wants(self.message.on)


@dataclass(slots=True)
class Seen:
    """The events that messages were written about, kept so that a restart repeats none.

    Attributes:
        since: events before this time are not told (seconds since 1970).
        looked: time of the last reading (seconds since 1970).
        keys: key of each event told lately -> when it was read (seconds since 1970).
    """

    since: float
    looked: float
    keys: dict[str, float]


class History:
    """Reads new events of a server at each call."""

    def __init__(self) -> None:
        now = time.time()
        self._kept = KeptFile("history.json", Seen, "what happened before now is not told")
        self._seen = self._kept.read(Seen(now, now, {}))

    def look(self, client: SyncPrefectClient, destinations: Mapping[str, Destination]) -> int:
        """Put messages about new events into the outbox; return the number of new events.

        Raises:
            httpx.HTTPError: the server does not answer; the next look goes on where this one began.
        """
        now = time.time()
        since = datetime.fromtimestamp(max(self._seen.since, self._seen.looked - _LATE_SECONDS), UTC)
        found = [*_ended_runs(client, since), *_told_events(client, since)]
        new = {one.key: one for one in found if one.key not in self._seen.keys}
        _emit(client, new.values())
        for one in new.values():
            for destination in destinations.values():
                if one.concerns(destination):
                    outbox.put(one.message, destination, one.key)
        recent = {
            key: at for key, at in self._seen.keys.items() if now - at < 2 * _LATE_SECONDS or key in new
        }
        self._seen = Seen(self._seen.since, now, recent | dict.fromkeys(new, now))
        self._kept.write(self._seen)
        return len(new)


def _ended_runs(client: SyncPrefectClient, since: datetime) -> Iterator[Happening]:
    """The runs that ended, oldest first. A run inside another one is told of by the end of that one."""
    from prefect.client.schemas.sorting import FlowRunSort

    ended = run_filter(**ENDED, end_time={"after_": since}, parent_task_run_id={"is_null_": True})
    runs = all_pages(
        lambda limit, offset: client.read_flow_runs(
            flow_run_filter=ended, sort=FlowRunSort.END_TIME_DESC, limit=limit, offset=offset
        )
    )
    for run in reversed(runs):
        on = _occasion_of(run)
        if on is not None:
            yield Happening(f"{run.id} {run.run_count} {on}", message_of(run, on))


def _occasion_of(run: FlowRun) -> str | None:
    """The occasion that the end of a run is; None: nobody is told, since the same error was told before."""
    state = run.state
    if state is None or state.name == STILL_FAILING:
        return None
    if state.is_completed():
        return UNCHANGED if state.name in (UNCHANGED_STATE, SKIPPED, POSTPONED) else COMPLETED
    return FAILED


def message_of(run: FlowRun, on: str) -> Message:
    """The message about the end of a run, with the address of its page in Prefect."""
    assert run.state is not None
    dataset = str(run.parameters.get("dataset") or "")
    about = f" ({dataset})" if dataset and dataset not in run.name else ""
    ui_url = os.environ.get("PREFECT_UI_URL") or os.environ.get("PREFECT_API_URL", "").removesuffix("/api")
    parts = [f"{run.name}{about}: {run.state.name}.", run.state.message, f"{ui_url}/runs/flow-run/{run.id}"]
    return Message(
        text=" ".join(part for part in parts if part),
        on=on,
        event=f"prefect.flow-run.{run.state.name}",
        resource=run.name,
        at=(run.end_time or run.state.timestamp).isoformat(),
    )


def _told_events(client: SyncPrefectClient, since: datetime) -> Iterator[Happening]:
    """Events of Shardmill's runs, oldest first."""
    seen: set[str] = set()
    while True:
        wanted = {
            "event": {"name": sorted(_EVENTS)},
            "occurred": {"since": since.isoformat()},
            "order": "ASC",
        }
        answer = client.request("POST", "/events/filter", json={"filter": wanted, "limit": _PAGE})
        events = answer.raise_for_status().json()["events"]
        for event in events:
            if event["id"] not in seen:
                yield _of_event(event)
        new = {event["id"] for event in events} - seen
        if len(events) < _PAGE or not new:
            return
        seen |= new
        since = datetime.fromisoformat(events[-1]["occurred"])


def _of_event(event: Mapping[str, Any]) -> Happening:
    on = _EVENTS[event["event"]]
    name = str(event["resource"].get("prefect.resource.name", event["resource"]["prefect.resource.id"]))
    text = {
        PUBLISHED: f"{name} was published",
        FAILING: f"{name}: {event['payload'].get('error', 'its source fails')}",
        RECOVERED: f"{name} works again",
    }[on]
    # The prepare run that published ends at once after it; a pipeline goes on to train.
    is_in_end = on == PUBLISHED and event["resource"].get(TRAINING) == OPEN
    return Happening(str(event["id"]), Message(text, on, event["event"], name, event["occurred"]), is_in_end)


def emit_problems(client: SyncPrefectClient, messages: Iterable[Message]) -> None:
    """Emit the events of problems that began or are over, for automations."""
    _post(
        client,
        [_event(one, one.event, f"shardmill.problem.{digest_of(one.resource)}") for one in messages],
    )


def _emit(client: SyncPrefectClient, found: Iterable[Happening]) -> None:
    """Emit ``shardmill.run.<occasion>`` for the ends of runs, for automations: Prefect's events come late."""
    ends = [one for one in found if one.message.on in (FAILED, COMPLETED, UNCHANGED)]
    _post(
        client,
        [
            _event(one.message, f"shardmill.run.{one.message.on}", f"shardmill.run.{one.key.split()[0]}")
            for one in ends
        ],
    )


def _event(message: Message, name: str, resource: str) -> dict[str, Any]:
    return {
        "id": str(uuid4()),
        "occurred": message.at,
        "event": name,
        "resource": {"prefect.resource.id": resource, "prefect.resource.name": message.resource},
        "payload": {"text": message.text},
    }


def _post(client: SyncPrefectClient, events: list[dict[str, Any]]) -> None:
    if events:
        client.request("POST", "/events", json=events).raise_for_status()
