"""On a server that others use too, the platform puts its own runs in order and no others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import State, StateDetails
from prefect.states import Crashed, Failed, Pending, Running

from tests.prefect_server.server import RunningServer

_HOUR_SECONDS = 3600
# The platform puts tasks in order 20 s after their run has ended, at the next of its looks, 10 s apart.
_TIDY_SECONDS = 180
# What the leaked run was to promote; other tests of this server promote too.
_NO_RUN = "no-such-run"


@dataclass(frozen=True)
class Leaked:
    """A run that crashed and left behind a task and the concurrency slot of its deployment.

    Attributes:
        run: its id.
        task: the id of its task.
        lease: the id of the lease of its place.
        place: the name of the limit of its deployment.
    """

    run: str
    task: str
    lease: str
    place: str


def leak(server: RunningServer, deployment: str, **parameters: str) -> Leaked:
    """Let a run crash while it waits for a retry: Prefect then keeps its concurrency slot."""
    run = server.post(
        f"/deployments/{deployment}/create_flow_run",
        name="leaked",
        parameters=parameters,
        tags=["automatic"],
        state={"type": "SCHEDULED", "state_details": {"scheduled_time": in_an_hour()}},  # no worker takes it
        empirical_policy={"retries": 1, "retry_delay": _HOUR_SECONDS},
    )["id"]
    # Prefect forgets the lease of a client that does not tell its release.
    with SyncPrefectClient(server.api_url) as client:
        pending = Pending(state_details=StateDetails(scheduled_time=datetime.now(UTC)))
        lease = set_state(client, run, pending).state_details.deployment_concurrency_lease_id
        set_state(client, run, Running())
        task = server.post(
            "/task_runs/",
            flow_run_id=run,
            name="left",
            task_key="left",
            dynamic_key="0",
            state={"type": "RUNNING", "name": "Running"},
        )["id"]
        assert set_state(client, run, Failed()).name == "AwaitingRetry"
        set_state(client, run, Crashed(), force=True)
    leaked = Leaked(run, task, str(lease), f"deployment:{deployment}")
    assert taken(server, leaked.place) == 1
    assert lease_file(server, leaked).exists()
    return leaked


def set_state(client: SyncPrefectClient, run: str, to: State[Any], *, force: bool = False) -> State[Any]:
    """Ask for a state of a run; return the one that Prefect gave it."""
    given = client.set_flow_run_state(UUID(run), to, force=force).state
    assert given is not None
    return given


def in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(seconds=_HOUR_SECONDS)).isoformat()


def taken(server: RunningServer, place: str) -> int:
    """The concurrency slots of a deployment that are taken."""
    found = server.post("/v2/concurrency_limits/filter", limit=200)
    return next(int(limit["active_slots"]) for limit in found if limit["name"] == place)


def runs_of(server: RunningServer, deployment: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.post(
        "/flow_runs/filter", deployments={"id": {"any_": [deployment]}}, limit=50
    )
    return found


def others_deployment(server: RunningServer) -> str:
    """Register the deployment of another team; return its id."""
    flow = server.post("/flows/", name="hourly-report")["id"]
    deployment = server.post(
        "/deployments/", flow_id=flow, name="hourly", entrypoint="reports.hourly", concurrency_limit=1
    )
    return str(deployment["id"])


def lease_file(server: RunningServer, leaked: Leaked) -> Path:
    return Path(server.env["SHARDMILL_HOME"]) / "prefect" / "concurrency_leases" / f"{leaked.lease}.json"


def test_what_a_killed_run_left_is_put_in_order_and_that_of_others_is_left_alone(
    shardmill_up: RunningServer,
) -> None:
    own = str(shardmill_up.get("/deployments/name/promote/promote")["id"])
    foreign = others_deployment(shardmill_up)
    of_others, of_ours = leak(shardmill_up, foreign), leak(shardmill_up, own, run=_NO_RUN)

    assert shardmill_up.comes_true(lambda: taken(shardmill_up, of_ours.place) == 0, _TIDY_SECONDS)
    assert not lease_file(shardmill_up, of_ours).exists(), "given back by its lease"
    assert shardmill_up.comes_true(
        lambda: shardmill_up.get(f"/task_runs/{of_ours.task}")["state_type"] == "CRASHED", _TIDY_SECONDS
    )
    assert shardmill_up.comes_true(
        lambda: [run["parameters"].get("run") for run in runs_of(shardmill_up, own)].count(_NO_RUN) == 2
    ), "started again"

    assert taken(shardmill_up, of_others.place) == 1
    assert lease_file(shardmill_up, of_others).exists()
    assert shardmill_up.get(f"/task_runs/{of_others.task}")["state_type"] == "RUNNING"
    assert [run["id"] for run in runs_of(shardmill_up, foreign)] == [of_others.run]
