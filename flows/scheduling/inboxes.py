"""Inboxes: folders whose new files are taken up in batches by runs of a flow.

A Prefect variable keeps each inbox, so all machines of a server know it. One process watches them all
(shardmill.flows.server.alarm.watch). It lists each folder every few seconds, seldom enough to spend a
twentieth of its time on it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx

from shardmill.flows.flow_runs.api_requests import all_pages, prefect_client, set_variable
from shardmill.flows.scheduling.coalescing import AUTOMATIC_TAG, SKIPPED
from shardmill.flows.scheduling.failures import POSTPONED, pause_after
from shardmill.flows.scheduling.source_state import Arrivals, Batching, files_of
from shardmill.infra.digests import digest_of
from shardmill.infra.readable import counted
from shardmill.infra.storage.locations import public_location

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import State

LOG = logging.getLogger("shardmill.inboxes")

_TAG = "shardmill-inbox"
INBOX_VARIABLES = {"variables": {"tags": {"all_": [_TAG]}}}  # filter of Prefect's API
_READ_SECONDS = 5.0
_LOCAL_SECONDS, _STORE_SECONDS = 2.0, 15.0
_SHARE_OF_TIME = 0.05  # share of one processor that listing may take


@dataclass(frozen=True, slots=True)
class Inbox:
    """A folder whose new files are taken up in batches.

    Attributes:
        flow: "prepare" or "pipeline".
        dataset: the dataset that the files become a part of.
        parameters: parameters of the flow; ``source`` is the folder.
        name: tells the schedules and inboxes of a dataset apart.
        batching: when a batch is taken up.
        is_active: False while it is paused.
    """

    flow: str
    dataset: str
    parameters: Mapping[str, Any]
    name: str = ""
    batching: Batching = field(default_factory=Batching)
    is_active: bool = True

    def __str__(self) -> str:
        return f"inbox: {counted(self.batching.files, 'file')} or {self.batching.within_seconds:g} s"

    @property
    def source(self) -> str:
        """The folder."""
        return str(self.parameters["source"])

    @property
    def variable(self) -> str:
        """Name of the variable that keeps it."""
        return f"{_TAG}-{digest_of([self.dataset, self.name])}"


def set_inbox(client: SyncPrefectClient, inbox: Inbox) -> None:
    """Keep an inbox in the place of the one of the same dataset and name."""
    set_variable(client, inbox.variable, asdict(inbox), _TAG)


def remove_inbox(client: SyncPrefectClient, inbox: Inbox) -> None:
    """Forget an inbox."""
    client.delete_variable_by_name(inbox.variable)


def read_inboxes(client: SyncPrefectClient) -> list[Inbox]:
    """All inboxes of the server."""

    def page(limit: int, offset: int) -> list[dict[str, Any]]:
        wanted = {**INBOX_VARIABLES, "limit": limit, "offset": offset}
        rows: list[dict[str, Any]] = (
            client.request("POST", "/variables/filter", json=wanted).raise_for_status().json()
        )
        return rows

    return inboxes_of(all_pages(page))


def inboxes_of(variables: Iterable[Mapping[str, Any]]) -> list[Inbox]:
    """Inboxes of these variables of Prefect; a variable of another form is logged and left out."""
    found = []
    for row in variables:
        try:
            value = dict(row["value"])
            found.append(Inbox(**{**value, "batching": Batching(**value["batching"])}))
        except (TypeError, KeyError, ValueError):
            LOG.warning("variable %s is not an inbox of this release: delete it", row.get("name"))
    return sorted(found, key=lambda inbox: (inbox.dataset, inbox.name))


def watch_inboxes() -> None:
    """Watch all inboxes of the server until this process ends."""
    watches: dict[str, _Watch] = {}
    while True:
        try:
            with prefect_client() as client:
                inboxes = {inbox.variable: inbox for inbox in read_inboxes(client) if inbox.is_active}
        except httpx.HTTPError as error:  # the server may be back soon; known inboxes are watched meanwhile
            LOG.warning("Prefect's API does not answer: %s", error)
        else:
            for name in [name for name, watch in watches.items() if inboxes.get(name) != watch.inbox]:
                watches.pop(name).stop()
            for name in inboxes.keys() - watches.keys():
                watches[name] = _Watch(inboxes[name])
        time.sleep(_READ_SECONDS)


def counts_as_new_again(state: State[Any] | None) -> bool:
    """Tell whether the files of a batch count as new again after its run ended in a state.

    A run that was skipped left its files to another run, which may fail or be cancelled.
    """
    return state is not None and state.is_completed() and state.name == SKIPPED


class _Watch:
    """Watches one inbox on a thread of its own, so that a folder that hangs holds up no other one."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self._arrivals = Arrivals(inbox.batching)
        self._run: UUID | None = None
        self._failures = 0
        self._retry_at = float("inf")
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name=f"inbox {inbox.dataset}", daemon=True).start()

    def stop(self) -> None:
        """End the watch soon."""
        self._stopped.set()

    def _watch(self) -> None:
        least = _STORE_SECONDS if "://" in self.inbox.source else _LOCAL_SECONDS
        pause = 0.0
        while not self._stopped.wait(pause):
            began = time.monotonic()
            try:
                self._look()
            except Exception:  # the watch goes on: the cause may pass, and the log has it
                LOG.exception("inbox %s", public_location(self.inbox.source))
            pause = max(least, (time.monotonic() - began) / _SHARE_OF_TIME)

    def _look(self) -> None:
        self._see_how_the_run_ended()
        files = files_of(self.inbox.source) if self._run is None else None
        if files is None:
            return
        number, now = self._arrivals.observe(files, time.monotonic()), time.monotonic()
        if (number or now >= self._retry_at) and not self._stopped.is_set():
            self._start_run(number)

    def _start_run(self, number: int) -> None:
        try:
            with prefect_client() as client:
                deployment = client.read_deployment_by_name(f"{self.inbox.flow}/{self.inbox.flow}")
                run = client.create_flow_run_from_deployment(
                    deployment.id,
                    parameters=dict(self.inbox.parameters),
                    tags=["shardmill", AUTOMATIC_TAG],
                )
        except Exception:
            self._arrivals.give_back()
            raise
        self._run, self._retry_at = run.id, float("inf")
        folder = public_location(self.inbox.source)
        LOG.warning("%s: takes up %s, run %s", folder, counted(number, "file"), run.name)

    def _see_how_the_run_ended(self) -> None:
        """Note when to try a failed batch again; new files are taken up before that."""
        if self._run is None:
            return
        from prefect.exceptions import ObjectNotFound

        with prefect_client() as client:
            try:
                state = client.read_flow_run(self._run).state
            except ObjectNotFound:
                state = None
        if state is not None and not state.is_final():
            return
        self._run = None
        if counts_as_new_again(state):
            self._arrivals.give_back()
            return
        if state is not None and state.is_completed() and state.name != POSTPONED:
            self._failures = 0
            return
        self._failures += 1
        self._retry_at = time.monotonic() + pause_after(self._failures)
