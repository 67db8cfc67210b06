"""Records of runs that took place without a Prefect server; the next `shardmill up` takes them over.

A command without a server needs none: it runs its jobs itself, and keeps a file under SHARDMILL_HOME/records
until a `shardmill up` of this home has made a flow run of it. The command locks the file while it runs. The
kernel releases the lock when the command ends, so the file of a killed command says "Running" and is free:
its flow run is marked as Crashed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, cast
from uuid import UUID, uuid4

from typing_extensions import TypedDict

from shardmill.flows import home
from shardmill.flows.flow_runs.api_requests import OWN_TAG, prefect_client
from shardmill.infra.errors import Cancelled, CorruptDataError, ShardmillError
from shardmill.infra.json_files import decode_json, open_shape, write_json
from shardmill.infra.progress import Event, subscribe
from shardmill.infra.storage.locations import public_values
from shardmill.infra.strict_json import dump_json

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

UNCHANGED = "Unchanged"  # the state of a run that found nothing to do

# So many of the latest records are kept if `shardmill up` never runs to take them over.
_KEPT = 200
_LOG_LINES = 200
_LEVELS = {"info": 20, "warning": 30, "error": 40}
_KILLED = "The process of this run was killed; the next run continues its work"


class _LogLine(TypedDict):
    timestamp: str
    level: int
    message: str


@open_shape
class _Record(TypedDict):
    flow: str
    name: str
    parameters: dict[str, Any]
    state: str
    message: str
    log: list[_LogLine]
    began_at: NotRequired[str]
    ended_at: NotRequired[str]


class RunRecord:
    """The record of one run, in a file that stays locked until the run ends."""

    def __init__(self, flow: str, name: str, parameters: Mapping[str, Any]) -> None:
        self._values: dict[str, Any] = {
            "flow": flow,
            "name": name,
            "parameters": public_values(dict(parameters)),
            "state": "Running",
            "message": "",
            "began_at": _now(),
            "ended_at": "",
            "log": [],
        }
        self._is_unchanged = False
        self._path = home.records_folder() / f"{uuid4()}.json"

    def log_event(self, event: Event) -> None:
        """Add a line about an event of the job to the log, if it is one that a page shows."""
        kind = event.get("event")
        if kind == "log":
            self._log(str(event.get("level")), str(event.get("message")))
        elif kind == "stage":
            self._log("info", f"begins: {event['stage']}")

    @contextlib.contextmanager
    def kept(self) -> Iterator[RunRecord]:
        """Write the record, and write how the run ended when the block ends."""
        for path in _files()[:-_KEPT]:
            path.unlink(missing_ok=True)
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("w") as file, contextlib.ExitStack() as ends:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(dump_json(self._values))
            file.flush()
            temporary.rename(self._path)
            ends.callback(subscribe(self.log_event))
            try:
                yield self
            except (Cancelled, KeyboardInterrupt) as stop:
                self._end("Cancelled", getattr(stop, "message", "stopped on request"))
                raise
            except ShardmillError as error:
                self._log("error", str(error))
                self._end("Failed", error.message)
                raise
            except BaseException as error:
                self._end("Failed", f"{type(error).__name__}: {error}")
                raise
            self._end(UNCHANGED if self._is_unchanged else "Completed", self._values["message"])

    def as_json(self) -> dict[str, Any]:
        """Return the content of the record's file."""
        return dict(self._values)

    def outcome(self, message: str, *, is_unchanged: bool = False) -> None:
        """Keep the outcome of the run in words, and whether it found nothing to do."""
        self._values["message"] = message
        self._is_unchanged = is_unchanged

    def _end(self, state: str, message: str) -> None:
        self._log("info", f"{state}: {message}")
        self._values |= {"state": state, "message": message, "ended_at": _now()}
        write_json(self._path, self._values)

    def _log(self, level: str, message: str) -> None:
        lines: list[dict[str, Any]] = self._values["log"]
        if len(lines) < _LOG_LINES:
            lines.append({"timestamp": _now(), "level": _LEVELS.get(level, 20), "message": message})


def take_over_records() -> int:
    """Make flow runs of the records of ended runs, on the server of this process; return their number.

    A record that was taken over twice, because this process was killed between, makes one flow run.
    """
    ended = ended_records()
    if not ended:
        return 0

    with prefect_client() as client:
        for path, values in ended:
            if _is_taken_over(client, path.stem, values):
                path.unlink(missing_ok=True)
            else:  # written by another release
                _put_aside(path)
    return len(ended)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def ended_records() -> list[tuple[Path, dict[str, Any]]]:
    """Return the records of ended runs, oldest first. A damaged one is put aside."""
    ended = []
    for path in _files():
        try:
            values = _ended_record(path)
        except CorruptDataError:
            _put_aside(path)
        else:
            if values is not None:
                ended.append((path, values))
    return ended


def _put_aside(path: Path) -> None:
    path.replace(path.with_suffix(".unreadable"))


def _is_taken_over(client: SyncPrefectClient, key: str, values: Mapping[str, Any]) -> bool:
    """Make a flow run of a record; return False if the record is not one of this release."""
    import httpx

    try:
        _make_flow_run(client, key, values)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    except httpx.HTTPStatusError as error:
        if error.response.is_server_error:
            raise
        return False
    return True


def _make_flow_run(client: SyncPrefectClient, key: str, values: Mapping[str, Any]) -> None:
    from prefect.client.schemas.objects import State, StateType

    killed = values["state"] == "Running"
    state, message = ("Crashed", _KILLED) if killed else (values["state"], values["message"])
    # Prefect dates states by its own clock, so the message has the times of the run.
    message = f"{message} (by a command{_period(values)})"
    kind = StateType.COMPLETED if state == UNCHANGED else StateType(state.upper())
    final: Any = State(type=kind, name=state, message=message)
    log = [{"name": "shardmill", **line} for line in values["log"]]
    body = {
        "flow_id": str(client.create_flow_from_name(values["flow"])),
        "name": values["name"],
        "parameters": values["parameters"],
        "tags": [OWN_TAG, "without-server"],
        "idempotency_key": key,
        "state": {"type": "PENDING", "name": "Pending"},
    }
    run_id = UUID(client.request("POST", "/flow_runs/", json=body).raise_for_status().json()["id"])
    client.set_flow_run_state(run_id, final, force=True)
    client.create_logs([{**line, "flow_run_id": str(run_id)} for line in log])


def _period(values: Mapping[str, Any]) -> str:
    """The time of a run, such as ``, 2026-05-01 09:00:00 to 09:03:10 UTC``."""
    times = [datetime.fromisoformat(values[name]) for name in ("began_at", "ended_at") if values.get(name)]
    if not times:
        return ""
    began, *ended = times
    words = f", {began:%Y-%m-%d %H:%M:%S}"
    for end in ended:
        words += f" to {end:%H:%M:%S}" if end.date() == began.date() else f" to {end:%Y-%m-%d %H:%M:%S}"
    return f"{words} UTC"


def _ended_record(path: Path) -> dict[str, Any] | None:
    """Return the content of a record once its command has ended in any way; None while it runs.

    Raises:
        CorruptDataError: it is damaged.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_ino != path.stat().st_ino:  # replaced this moment, by its end
                return None
            data = file.read()
    except IsADirectoryError as error:
        raise CorruptDataError(f"{path} is a folder", "remove it") from error
    except OSError:  # held, or gone this moment
        return None
    return cast("dict[str, Any]", decode_json(data, _Record, str(path), "delete it"))


def _files() -> list[Path]:
    """The records, oldest first."""

    def changed(path: Path) -> float:
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
        return 0.0

    return sorted(home.records_folder().glob("*.json"), key=changed)
