"""Read runs, schedules and workers through Prefect's REST API, so that the page need not import Prefect."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from shardmill.flows.flow_runs.run_records import UNCHANGED
from shardmill.flows.flow_runs.showing.markdown import unescaped
from shardmill.flows.scheduling.coalescing import SKIPPED
from shardmill.flows.scheduling.failures import POSTPONED
from shardmill.flows.scheduling.inboxes import INBOX_VARIABLES, Inbox, inboxes_of
from shardmill.infra.whole_job import WAITING

_TIMEOUT_SECONDS = 10.0
_RUNNING = ("RUNNING", "PENDING", "CANCELLING")
_FAILED = ("FAILED", "CRASHED")
_ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
_MOST_FLOWS = 50
_MOST_INBOXES = 50
_NOTHING_DONE = (UNCHANGED, SKIPPED, POSTPONED)
# Failures are told from the beginning of yesterday on, or since a person has seen them, at most so long.
FAILURES_DAYS = 14


class PrefectAway(Exception):
    """Prefect's API cannot be reached, or its answer is invalid."""


@dataclass(frozen=True, slots=True)
class FlowRun:
    """One run of a flow.

    Attributes:
        id, name, flow: of the run.
        state: such as ``Running``, or ``Waiting`` while its job waits for another one, which ``doing`` names;
            ``kind`` is its type, such as ``RUNNING``.
        message: why it ended so.
        begins: when it began, or will (seconds since 1970); 0: unknown.
        ended: when it ended (seconds since 1970); 0: it has not.
        parameters: parameters of the flow.
        percent, doing: its live progress; None: it has told none.
    """

    id: str
    name: str
    flow: str
    state: str
    kind: str
    message: str
    begins: float
    parameters: Mapping[str, Any]
    percent: float | None = None
    doing: str = ""
    ended: float = 0.0

    @property
    def title(self) -> str:
        """Name of the run by its work, such as ``prepare photos``, since Prefect's own name may be random."""
        subject = self.parameters.get("dataset") or self.parameters.get("run") or ""
        return f"{self.flow} {subject}".strip() or self.name

    @property
    def is_failure(self) -> bool:
        """Whether it failed or crashed, whatever the name of its state."""
        return self.kind in _FAILED


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker: its name, its pool, whether it is alive, and when it was last heard (seconds since 1970)."""

    name: str
    pool: str
    is_alive: bool
    heard: float


@dataclass(frozen=True, slots=True)
class Activity:
    """Prefect's runs and workers at one moment.

    Attributes:
        running, coming, ended: runs at work, the next ones, the last ones that did something.
        failed: those of the last days that failed, the newest first.
        idle: the last ones that had nothing to do, or left it to another run.
        workers: workers of all pools.
        inboxes: folders that are watched.
        read, problem: when it was read (seconds since 1970), and why there is nothing newer.
    """

    running: Sequence[FlowRun] = field(default_factory=tuple)
    coming: Sequence[FlowRun] = field(default_factory=tuple)
    ended: Sequence[FlowRun] = field(default_factory=tuple)
    workers: Sequence[Worker] = field(default_factory=tuple)
    inboxes: Sequence[Inbox] = field(default_factory=tuple)
    failed: Sequence[FlowRun] = field(default_factory=tuple)
    idle: Sequence[FlowRun] = field(default_factory=tuple)
    read: float = 0.0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of runs: in the history by (flow, type of state), and those that are due but not begun."""

    runs: Mapping[tuple[str, str], int]
    waiting: int


class PrefectApi:
    """A client of one Prefect server. Prefect wants its CSRF token for POST even where POST only reads."""

    def __init__(self, url: str, auth: str | None) -> None:
        headers = {}
        if auth:
            headers["Authorization"] = f"Basic {base64.b64encode(auth.encode()).decode('ascii')}"
        # The environment may name a proxy, which is not meant for this address.
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"), headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=False
        )
        self._client_id = str(uuid.uuid4())
        self._token: str | None = None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def activity(self) -> Activity:
        """Return the running runs, the next and the last ones, and the workers.

        Raises:
            PrefectAway: the API cannot be reached, or its answer is invalid.
        """
        ended = "END_TIME_DESC"
        since = (datetime.now(UTC) - timedelta(days=FAILURES_DAYS)).isoformat()
        try:
            return Activity(
                await self._runs(_RUNNING, "START_TIME_DESC", 20, with_progress=True),
                await self._runs(("SCHEDULED",), "EXPECTED_START_TIME_ASC", 10),
                await self._runs(_ENDED, ended, 10, names={"not_any_": list(_NOTHING_DONE)}),
                await self._workers(),
                inboxes_of(await self._post("/variables/filter", **INBOX_VARIABLES, limit=_MOST_INBOXES)),
                await self._runs(_FAILED, ended, 50, end_time={"after_": since}),
                await self._runs(_ENDED, ended, 20, names={"any_": list(_NOTHING_DONE)}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PrefectAway(f"Prefect's API answered in an unknown way: {error!r}") from error

    async def counts(self) -> Counts:
        """Return the numbers of runs.

        Raises:
            PrefectAway: the API cannot be reached, or its answer is invalid.
        """
        now = datetime.now(UTC)
        whole = {
            "history_start": (now - timedelta(days=3650)).isoformat(),
            "history_end": (now + timedelta(days=3650)).isoformat(),
            "history_interval_seconds": 2 * 3650 * 86400,
        }
        try:
            found: dict[tuple[str, str], int] = {}
            for flow in await self._post("/flows/filter", limit=_MOST_FLOWS):
                for interval in await self._post(
                    "/flow_runs/history", **whole, flows={"id": {"any_": [flow["id"]]}}
                ):
                    for state in interval["states"]:
                        key = (str(flow["name"]), str(state["state_type"]).lower())
                        found[key] = found.get(key, 0) + int(state["count_runs"])
            return Counts(found, await self._waiting())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PrefectAway(f"Prefect's API answered in an unknown way: {error!r}") from error

    async def _waiting(self) -> int:
        due = {"before_": datetime.now(UTC).isoformat()}
        scheduled = {"state": {"type": {"any_": ["SCHEDULED"]}}, "expected_start_time": due}
        return int(await self._post("/flow_runs/count", flow_runs=scheduled))

    async def _runs(
        self,
        kinds: Sequence[str],
        sort: str,
        limit: int,
        *,
        names: Mapping[str, Any] | None = None,
        with_progress: bool = False,
        **more: Any,
    ) -> list[FlowRun]:
        # Runs inside other runs are shown with their parents.
        state = {"type": {"any_": list(kinds)}} | ({"name": names} if names else {})
        wanted = {"state": state, "parent_task_run_id": {"is_null_": True}, **more}
        found = await self._post("/flow_runs/filter", flow_runs=wanted, sort=sort, limit=limit)
        flows = await self._flow_names({run["flow_id"] for run in found})
        progress = await self._progress([run["id"] for run in found]) if with_progress else {}
        return [_flow_run(run, flows, progress.get(run["id"])) for run in found]

    async def _flow_names(self, ids: set[str]) -> dict[str, str]:
        if not ids:
            return {}
        found = await self._post("/flows/filter", flows={"id": {"any_": sorted(ids)}})
        return {flow["id"]: flow["name"] for flow in found}

    async def _progress(self, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return id of a flow run -> its latest progress artifact."""
        if not ids:
            return {}
        wanted = {"flow_run_id": {"any_": list(ids)}, "type": {"any_": ["progress"]}}
        found = await self._post("/artifacts/filter", artifacts=wanted, sort="CREATED_DESC", limit=100)
        return {artifact["flow_run_id"]: artifact for artifact in reversed(found)}

    async def _workers(self) -> list[Worker]:
        workers = []
        for pool in await self._post("/work_pools/filter", limit=20):
            found = await self._post(f"/work_pools/{pool['name']}/workers/filter", limit=50)
            workers += [
                Worker(
                    worker["name"], pool["name"], worker["status"] == "ONLINE",
                    _seconds(worker["last_heartbeat_time"]),
                )
                for worker in found
            ]  # fmt: skip
        return sorted(workers, key=lambda worker: (not worker.is_alive, -worker.heard))

    async def _post(self, path: str, **body: Any) -> Any:
        if self._token is None:
            await self._take_token()
        answer = await self._request("POST", path, json=body, headers=self._csrf())
        if answer.status_code == httpx.codes.FORBIDDEN:  # the token has run out
            await self._take_token()
            answer = await self._request("POST", path, json=body, headers=self._csrf())
        if answer.is_error:
            raise PrefectAway(f"Prefect's API answered {path} with status {answer.status_code}")
        return answer.json()

    async def _take_token(self) -> None:
        answer = await self._request("GET", "/csrf-token", params={"client": self._client_id})
        # Any other answer: this server asks for no token.
        self._token = str(answer.json()["token"]) if answer.is_success else ""

    def _csrf(self) -> dict[str, str]:
        return {"Prefect-Csrf-Client": self._client_id, "Prefect-Csrf-Token": self._token or ""}

    async def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **more)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise PrefectAway(f"Prefect's API does not answer: {error or type(error).__name__}") from error


def _flow_run(
    run: Mapping[str, Any], flows: Mapping[str, str], progress: Mapping[str, Any] | None
) -> FlowRun:
    state = run.get("state") or {}
    percent = progress["data"] if progress else None
    kind, doing = str(run.get("state_type") or ""), unescaped(str((progress or {}).get("description") or ""))
    waits = kind == "RUNNING" and doing.startswith(WAITING)
    return FlowRun(
        id=str(run["id"]),
        name=str(run["name"]),
        flow=flows.get(run["flow_id"], ""),
        state="Waiting" if waits else str(run.get("state_name") or ""),
        kind=kind,
        message=str(state.get("message") or ""),
        begins=_seconds(run.get("start_time") or run.get("expected_start_time")),
        parameters=run.get("parameters") or {},
        percent=float(percent) if isinstance(percent, int | float) else None,
        doing=doing,
        ended=_seconds(run.get("end_time")),
    )


def _seconds(moment: str | None) -> float:
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0
