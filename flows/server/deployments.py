"""Register the deployments of the three flows, and set their schedules.

The deployments are described in infra/deploy/prefect.yaml, which Prefect's own `deploy` reads.
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
    """Start Prefect's command that registers all deployments; it takes some seconds."""
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
        EnvironmentFault: The deployments could not be registered.
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
    """Create the work pool if it does not exist."""
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
    """Mark the runs of a killed worker as Crashed; return their number.

    They would stay Running for ever and hold their deployment's only place. Call this before a worker starts,
    so that its own runs are not among them.
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
            state: Any = Crashed(message="The worker was killed; the next run continues its work")
            client.set_flow_run_state(run.id, state, force=True)
    return len(stale)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a flow runs by itself, and with which parameters.

    Attributes:
        flow: "prepare" or "pipeline".
        slug: Name of the schedule, which is unique within a deployment.
        parameters: Parameters of the flow.
        cron: A cron expression, or None.
        every: An interval, or None.
        timezone: Time zone of the cron expression; None is UTC.
    """

    flow: str
    slug: str
    parameters: Mapping[str, Any]
    cron: str | None = None
    every: timedelta | None = None
    timezone: str | None = None

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {interval_in_words(self.every)}"
        return f"cron {self.cron} ({self.timezone or 'UTC'})"


def interval_in_words(interval: timedelta) -> str:
    """An interval like ``1 d``, ``1 h 30 min`` or ``90.5 s``."""
    rest, words = interval.total_seconds(), []
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
        count, rest = divmod(rest, seconds)
        if count:
            words.append(f"{count:.0f} {unit}")
    return " ".join([*words, *([f"{rest:g} s"] if rest or not words else [])])


def set_schedule(schedule: Schedule) -> None:
    """Create a schedule, and delete all others of the same slug.

    Raises:
        UsageError: Prefect does not accept the cron expression or the time zone.
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
    """Remove the schedules of a slug from all deployments; return their number."""
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
