"""Skip runs that would do the same as another one: one runs, and at most one waits.

Schedules go on to make runs while a long run works, or while the server or the worker is away. A run that
begins does the work of all identical runs that were due before. While it works, one identical run may wait.
Each run sees to this for all runs of its flow, so it holds on every Prefect server, also without
`shardmill up`. Runs that a person started are never skipped.

Runs of a flow that do the same work are recognised also if only one of them names the default values.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import BaseModel

from shardmill.flows.flow_runs.api_requests import all_pages, own_deployments, prefect_client, run_filter
from shardmill.flows.parameters import root_or_default, runs_or_default
from shardmill.infra.digests import digest_of

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

AUTOMATIC_TAG = "automatic"  # tag of runs that an inbox started


_SETTINGS = {"config", "prepare_config", "train_config"}


def is_automatic(run: FlowRun) -> bool:
    """Tell whether a schedule, an inbox or an automation made the run, and not a person."""
    by_automation = run.created_by is not None and run.created_by.type == "AUTOMATION"
    return run.auto_scheduled or by_automation or AUTOMATIC_TAG in run.tags


def kind_of(flow: Flow[..., Any], parameters: Mapping[str, Any]) -> str:
    """Return a digest; equal digests mean that the flow does the same work with both sets of parameters."""
    from prefect.exceptions import ParameterBindError, ParameterTypeError, SignatureMismatchError

    try:
        given = flow.validate_parameters(dict(parameters))
    except (ParameterBindError, ParameterTypeError, SignatureMismatchError, TypeError):
        return digest_of([flow.name, dict(parameters)])
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(flow.fn).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    values = {name: _plain(value) for name, value in {**defaults, **given}.items()}
    for name in _SETTINGS & values.keys():
        values[name] = values[name] or {}  # empty settings are the defaults
    for name, or_default in (("root", root_or_default), ("runs", runs_or_default)):
        if name in values:
            values[name] = or_default(values[name])
    return digest_of([flow.name, values])


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, BaseModel) else value


SKIPPED = "Skipped"

_PAUSE_SECONDS = 10.0
# A run that waits to be tried again has begun already, so it is not among these.
_WAITING = ("Scheduled", "Late", "AwaitingConcurrencySlot")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that is due and has not begun.

    Attributes:
        id: id of the run.
        kind: equal for runs that do the same.
        automatic: whether no person started it.
        due: when it was to start.
    """

    id: UUID
    kind: str
    automatic: bool
    due: datetime


def superfluous(waiting: Sequence[Waiting], kind: str, began: datetime) -> list[Waiting]:
    """The waiting runs that need not run.

    While a run of kind A works that began at 9:00, of these runs only two stay: the one of A that became due
    later, and the first of B. A run that a person started always stays, and then no automatic one is needed::

        A due at 8:50   superfluous: the run that works began after it was due
        A due at 9:10   stays
        A due at 9:20   superfluous: it would do what the run of 9:10 does
        B due at 8:40   stays
        B due at 8:50   superfluous

    Args:
        waiting: the runs of a flow that wait.
        kind: kind of the run that works.
        began: when that run began.
    """
    found = []
    for each in sorted({run.kind for run in waiting}):
        alike = sorted((run for run in waiting if run.kind == each), key=lambda run: run.due)
        automatic = [run for run in alike if run.automatic]
        covered = [run for run in automatic if each == kind and run.due <= began]
        rest = [run for run in automatic if run not in covered]
        found += covered
        found += rest if len(automatic) < len(alike) else rest[1:]
    return found


@contextlib.contextmanager
def skipping_superfluous(flow: Flow[..., Any], run: FlowRun) -> Iterator[None]:
    """Skip superfluous runs of this run's flow at once, and again and again until the block ends."""
    done = threading.Event()
    skip = _Skipping(flow, run, _ServerClock(run))
    skip()
    thread = threading.Thread(target=_repeat, args=(skip, done), name="skip-superfluous-runs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def _repeat(skip: Callable[[], None], done: threading.Event) -> None:
    while not done.wait(_PAUSE_SECONDS):
        skip()


class _ServerClock:
    """The time of the server, which says when runs are due: the clock of this machine may be wrong."""

    def __init__(self, run: FlowRun) -> None:
        self.began = run.state.timestamp if run.state is not None else datetime.now(UTC)
        self._since = time.monotonic()

    def now(self) -> datetime:
        """Return the time of the server."""
        return self.began + timedelta(seconds=time.monotonic() - self._since)


class _Skipping:
    """Skips the superfluous runs of a flow when it is called."""

    def __init__(self, flow: Flow[..., Any], run: FlowRun, clock: _ServerClock) -> None:
        self._flow = flow
        self._run = run
        self._kind = kind_of(flow, run.parameters)
        self._clock = clock

    def __call__(self) -> None:
        import httpx

        # A server that is away now may be back later: the run goes on meanwhile.
        with contextlib.suppress(httpx.HTTPError), prefect_client() as client:
            for waiting in superfluous(self._waiting(client), self._kind, self._clock.began):
                alike = waiting.kind == self._kind
                does = f"Run {self._run.name} does the same" if alike else "Another run does the same"
                _skip(client, waiting.id, does)

    def _waiting(self, client: SyncPrefectClient) -> list[Waiting]:
        return [
            Waiting(run.id, kind_of(self._flow, run.parameters), is_automatic(run), _due(run))
            for run in _due_runs(client, self._clock.now(), self._run.flow_id)
            if run.id != self._run.id
        ]


def skip_repeated(client: SyncPrefectClient) -> int:
    """Skip automatic runs that wait beside another one of the same deployment and parameters.

    A run that works sees to this itself. This is for the time while none does: after an outage, a worker
    would request slots for all runs that piled up. Runs of deployments that are not Shardmill's stay.

    Returns:
        The number of runs that were skipped.
    """
    now = datetime.now(UTC)
    runs = _due_runs(client, now)
    deployments = {run.id: run.deployment_id for run in runs if run.deployment_id is not None}
    waiting = [
        Waiting(run.id, digest_of([str(deployments[run.id]), run.parameters]), is_automatic(run), _due(run))
        for run in runs
        if run.id in deployments
    ]
    skipped = superfluous(waiting, "", now)
    if skipped:
        own = own_deployments(client, {deployments[each.id] for each in skipped})
        skipped = [each for each in skipped if deployments[each.id] in own]
    for each in skipped:
        _skip(client, each.id, "Another run does the same")
    return len(skipped)


def _skip(client: SyncPrefectClient, run_id: UUID, message: str) -> None:
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Completed

    state: Any = Completed(name=SKIPPED, message=message)
    # Whoever removes a schedule deletes its runs that wait.
    with contextlib.suppress(ObjectNotFound):
        client.set_flow_run_state(run_id, state)


def _due_runs(client: SyncPrefectClient, now: datetime, flow_id: UUID | None = None) -> list[FlowRun]:
    """The runs that are due and have not begun, of one flow or of all."""
    from prefect.client.schemas.filters import FlowFilter, FlowFilterId

    of_flow = FlowFilter(id=FlowFilterId(any_=[flow_id])) if flow_id is not None else None
    waiting = run_filter(state={"name": {"any_": _WAITING}}, expected_start_time={"before_": now})
    return all_pages(
        lambda limit, offset: client.read_flow_runs(
            flow_filter=of_flow, flow_run_filter=waiting, limit=limit, offset=offset
        )
    )


def _due(run: FlowRun) -> datetime:
    return run.expected_start_time or run.created or datetime.now(UTC)
