"""Back off from a source that fails repeatedly, and notify once per error.

A Prefect variable keeps the failures in a row of each kind of run. A run that a schedule or an inbox started
is postponed until the time of the next try: one minute after the first failure, then twice as long each time,
six hours at most. It is tried at once when the source has changed, or when a person starts it.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shardmill.flows.flow_runs.api_requests import set_variable
from shardmill.infra.readable import counted, shortened

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

POSTPONED = "Postponed"  # the state of a run that is not tried now

_FIRST_SECONDS = 60.0
_LONGEST_SECONDS = 6 * 3600.0
_TAG = "shardmill-failures"
_ERROR_CHARACTERS = 1000  # longest kept text: Prefect refuses a variable of 5,000


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures in a row of one kind of run.

    Attributes:
        count: how many there were with the same error.
        error: the error.
        last_at: time of the last one (seconds since the epoch).
        source_mark: the state of the source then; empty if it is not known.
    """

    count: int
    error: str
    last_at: float
    source_mark: str

    @property
    def next_try_at(self) -> float:
        """Time of the next try (seconds since the epoch)."""
        return self.last_at + pause_after(self.count)


def pause_after(failures: int) -> float:
    """The pause after so many failures in a row (seconds)."""
    return min(_FIRST_SECONDS * 2.0 ** min(failures - 1, 20), _LONGEST_SECONDS)


def with_failure(before: Failures | None, error: str, now: float, source_mark: str) -> Failures:
    """The failures after one more. A new error starts the count again."""
    count = before.count + 1 if before is not None and is_same(before.error, error) else 1
    return Failures(count, shortened(error, _ERROR_CHARACTERS), now, source_mark)


def is_same(error: str, other: str) -> bool:
    """Tell whether two messages differ in nothing but numbers."""
    without_numbers = [
        re.sub(r"\d+", "0", shortened(message, _ERROR_CHARACTERS)) for message in (error, other)
    ]
    return without_numbers[0] == without_numbers[1]


def reason_to_postpone(failures: Failures, now: float, source_mark: str) -> str | None:
    """The reason to skip a run now; None if it is to be tried."""
    # A clock that was set back must not postpone the next try beyond the pause.
    has_paused = abs(now - failures.last_at) >= pause_after(failures.count)
    if has_paused or source_mark != failures.source_mark:
        return None
    next_try = datetime.fromtimestamp(failures.next_try_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"failed {counted(failures.count, 'time')} with the same error, "
        f"next try at {next_try}, or when the source changes: {failures.error}"
    )


def read_failures(client: SyncPrefectClient, kind: str) -> Failures | None:
    """The failures in a row of a kind of run; None if the last one succeeded."""
    variable = client.read_variable_by_name(_name(kind))
    if variable is None or not isinstance(variable.value, dict):
        return None
    try:
        return Failures(**variable.value)
    except TypeError:  # written by another release
        return None


def write_failures(client: SyncPrefectClient, kind: str, failures: Failures) -> None:
    """Keep the failures in a row of a kind of run."""
    set_variable(client, _name(kind), asdict(failures), _TAG)


def forget_failures(client: SyncPrefectClient, kind: str) -> bool:
    """Forget the failures of a kind of run after a success; tell whether there were any."""
    from prefect.exceptions import ObjectNotFound

    try:
        client.delete_variable_by_name(_name(kind))
    except ObjectNotFound:
        return False
    return True


def announce(event: str, kind: str, run_name: str, **payload: Any) -> None:
    """Emit an event about a kind of run, for automations: its source begins to fail, or has recovered."""
    from prefect.events import emit_event

    resource = {"prefect.resource.id": f"shardmill.source.{kind}", "prefect.resource.name": run_name}
    emit_event(event=f"shardmill.source.{event}", resource=resource, payload=payload)


def _name(kind: str) -> str:
    return f"{_TAG}-{kind}"
