"""The deployments of the three flows: registering them, and their schedules.

What they are stands in infra/deploy/prefect.yaml, which Prefect's own `deploy` reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

POOL = "shardmill"
FLOWS = ("prepare", "train", "pipeline")

_DEPLOY_SECONDS = 180.0


def prefect_file() -> Path:
    """infra/deploy/prefect.yaml of this installation."""
    return Path(str(files("infra").joinpath("deploy", "prefect.yaml")))


def start_deploying(env: Mapping[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    """Register all deployments, in a process of its own (Prefect's command takes some seconds)."""
    command = [
        sys.executable,
        "-m",
        "prefect",
        "--no-prompt",
        "deploy",
        "--all",
        "--prefect-file",
        str(prefect_file()),
    ]
    with log_path.open("wb") as log:
        # Prefect looks about in the working folder for a project; ours is this file alone.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=prefect_file().parent,
            env={**os.environ, **env},
        )


def finish_deploying(process: subprocess.Popen[bytes], log_path: Path) -> None:
    """Wait for ``start_deploying``.

    Raises:
        EnvironmentFault: the deployments could not be registered.
    """
    try:
        status = process.wait(timeout=_DEPLOY_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault("registering the deployments took too long", f"see {log_path}") from error
    finally:
        process.kill()
        process.wait()
    if status != 0:
        tail = "\n".join(log_path.read_text("utf-8", "replace").splitlines()[-12:])
        raise EnvironmentFault(
            f"the deployments could not be registered; Prefect last said:\n{tail}", f"see {log_path}"
        )


def make_pool() -> None:
    """Make the work pool, where it is not there."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectNotFound
    from prefect.workers.process import ProcessWorker

    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
        except ObjectNotFound:
            template = ProcessWorker.get_default_base_job_template()
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=template))


def end_stale_runs() -> int:
    """Mark runs that a worker of this machine left behind when it was killed as Crashed; how many.

    Called before the worker starts, so that none of its own can be among them. Otherwise they would stay
    Running for ever and hold their deployment's only place.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        WorkPoolFilter,
        WorkPoolFilterName,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.states import Crashed

    unfinished = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    with get_client(sync_client=True) as client:
        stale = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=unfinished))
            ),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL])),
            sort=FlowRunSort.START_TIME_DESC,
            limit=200,
        )
        for run in stale:
            state: Any = Crashed(message="The worker was killed; the next run goes on from here")
            client.set_flow_run_state(run.id, state, force=True)
    return len(stale)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a flow runs by itself, and on what.

    Attributes:
        flow: "prepare" or "pipeline".
        slug: names it; a deployment has one schedule of a slug.
        parameters: of the flow.
        cron: a cron expression, or None.
        every: an interval, or None.
        timezone: of the cron expression.
    """

    flow: str
    slug: str
    parameters: Mapping[str, Any]
    cron: str | None = None
    every: timedelta | None = None
    timezone: str | None = None

    def __str__(self) -> str:
        return f"cron {self.cron}" if self.cron else f"every {self.every}"


def set_schedule(schedule: Schedule) -> None:
    """Make a schedule, in place of any of the same slug: a dataset is prepared, or also trained on.

    Raises:
        UsageError: it is none that Prefect knows.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate

    wanted = DeploymentScheduleCreate(
        schedule=_when(schedule), slug=schedule.slug, parameters=dict(schedule.parameters), active=True
    )
    with get_client(sync_client=True) as client:
        for flow in FLOWS:
            _delete_schedules(client, _read_deployment(client, flow), schedule.slug)
        client.create_deployment_schedules(_read_deployment(client, schedule.flow).id, [wanted])


def _when(schedule: Schedule) -> CronSchedule | IntervalSchedule:
    from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
    from pydantic import ValidationError

    if schedule.cron is None:
        assert schedule.every is not None
        return IntervalSchedule(interval=schedule.every)
    try:
        return CronSchedule(cron=schedule.cron, timezone=schedule.timezone)
    except ValidationError as error:
        problem = error.errors()[0]
        raise UsageError(
            f"--{problem['loc'][0]} {problem['input']!r}: not valid",
            'for example --cron "0 3 * * *" --timezone UTC',
        ) from error


def remove_schedules(slug: str) -> int:
    """Remove the schedules of a slug from all deployments; how many there were."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return sum(_delete_schedules(client, _read_deployment(client, flow), slug) for flow in FLOWS)


def schedules() -> list[Schedule]:
    """All schedules of the deployments."""
    from prefect.client.orchestration import get_client

    found = []
    with get_client(sync_client=True) as client:
        for flow in FLOWS:
            for entry in _read_deployment(client, flow).schedules:
                when = entry.schedule
                found.append(
                    Schedule(
                        flow=flow,
                        slug=entry.slug or "",
                        parameters=entry.parameters,
                        cron=getattr(when, "cron", None),
                        every=getattr(when, "interval", None),
                        timezone=getattr(when, "timezone", None),
                    )
                )
    return found


def _read_deployment(client: SyncPrefectClient, flow: str) -> Any:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(f"{flow}/{flow}")
    except ObjectNotFound as error:
        raise EnvironmentFault(
            f"the server has no deployment {flow}/{flow}",
            f"start `shardmill up`, or register them: prefect deploy --all --prefect-file {prefect_file()}",
        ) from error


def _delete_schedules(client: SyncPrefectClient, deployment: Any, slug: str) -> int:
    stale = [entry for entry in deployment.schedules if entry.slug == slug]
    for entry in stale:
        client.delete_deployment_schedule(deployment.id, entry.id)
    return len(stale)
