"""Register the deployments of the flows.

The deployments are described in infra/deploy/prefect.yaml, which Prefect's own `deploy` reads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.errors import EnvironmentFault

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

POOL = "shardmill"
SCHEDULED_FLOWS = ("prepare", "pipeline", "maintain")

_DEPLOY_SECONDS = 300.0


def prefect_file() -> Path:
    """infra/deploy/prefect.yaml of this installation."""
    return Path(str(files("infra").joinpath("deploy", "prefect.yaml")))


def start_deploying(
    env: Mapping[str, str], log_path: Path, described: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start Prefect's command that registers all deployments of a file; it takes some seconds.

    Args:
        env: environment of the command beside that of this process.
        log_path: file for the output of the command.
        described: the file; None for ``prefect_file()``.
    """
    path = described or prefect_file()
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(path)]
    with log_path.open("wb") as log:
        # Prefect looks about in the working folder for a project; ours is this file alone.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=path.parent,
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


def make_pool(name: str = POOL, kind: str = "process") -> bool:
    """Create a work pool if it does not exist; return whether it was created.

    Args:
        name: its name.
        kind: "process", or the name of a template of infra/deploy/work_pools.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            pool = WorkPoolCreate(name=name, type=kind, base_job_template=_job_template(kind))
            client.create_work_pool(pool)
            return True
    return False


def _job_template(kind: str) -> dict[str, Any]:
    from prefect.workers.process import ProcessWorker

    if kind == "process":
        return dict(ProcessWorker.get_default_base_job_template())
    template: dict[str, Any] = json.loads((prefect_file().parent / "work_pools" / f"{kind}.json").read_text())
    return template


def read_deployment(client: SyncPrefectClient, flow: str) -> Any:
    """The deployment of a flow.

    Raises:
        EnvironmentFault: The server has none.
    """
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(f"{flow}/{flow}")
    except ObjectNotFound as error:
        raise EnvironmentFault(
            f"the server has no deployment {flow}/{flow}",
            f"start `shardmill up`, or register them: prefect deploy --all --prefect-file {prefect_file()}",
        ) from error
