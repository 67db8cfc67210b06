"""Register the deployments of the flows.

The deployments are described in infra/deploy/prefect.yaml, which Prefect's own `deploy` reads.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmill.flows.flow_runs.api_requests import prefect_client, renew_entrypoints
from shardmill.flows.server.services import Service
from shardmill.infra.errors import EnvironmentFault

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

POOL = "shardmill"
SCHEDULED_FLOWS = ("prepare", "pipeline", "maintain")

_DEPLOY_SECONDS = 300.0


def prefect_file() -> Path:
    """Return the path of infra/deploy/prefect.yaml of this installation."""
    return Path(str(files("shardmill.infra").joinpath("deploy", "prefect.yaml")))


class Deploying(Service):
    """Prefect's command that registers all deployments of a file; it takes some seconds.

    Args:
        env: environment of the command beside that of this process.
        log_path: file for the output of the command; the output of earlier commands is deleted.
        described: the file that describes the deployments; None for ``prefect_file()``.
    """

    def __init__(self, env: Mapping[str, str], log_path: Path, described: Path | None = None) -> None:
        log_path.unlink(missing_ok=True)
        super().__init__(["deploy", str(described or prefect_file())], log_path=log_path, env=env)

    def finish(self) -> None:
        """Wait until the deployments are registered, then renew others of an earlier release.

        Raises:
            EnvironmentFault: They could not be registered.
        """
        try:
            status = self.process.wait(timeout=_DEPLOY_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFault(
                "registering the deployments took too long", f"see {self.log_path}"
            ) from error
        if status != 0:
            raise EnvironmentFault(
                f"the deployments could not be registered; Prefect last said:\n{self.last_lines()}",
                f"see {self.log_path}",
            )
        with prefect_client() as client:
            renew_entrypoints(client)


def make_pool(name: str = POOL, kind: str = "process") -> bool:
    """Create a work pool and the queues of its deployments if they do not exist; tell if it was created.

    A queue takes one run at a time, as its deployment does. Without it, a run that finds the place of its
    deployment taken would ask again half a minute later, behind all that became due meanwhile.

    Args:
        name: its name.
        kind: "process", or the name of a template of infra/deploy/work_pools.
    """
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    with prefect_client() as client:
        try:
            client.read_work_pool(name)
            is_new = False
        except ObjectNotFound:
            pool = WorkPoolCreate(name=name, type=kind, base_job_template=_job_template(kind))
            client.create_work_pool(pool)
            is_new = True
        for queue in _deployment_names():
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_queue(queue, work_pool_name=name, concurrency_limit=1)
    return is_new


def _deployment_names() -> list[str]:
    """Return the names of all deployments."""
    import yaml

    return [str(each["name"]) for each in yaml.safe_load(prefect_file().read_text())["deployments"]]


def _job_template(kind: str) -> dict[str, Any]:
    from prefect.workers.process import ProcessWorker

    if kind == "process":
        return dict(ProcessWorker.get_default_base_job_template())
    template: dict[str, Any] = json.loads((prefect_file().parent / "work_pools" / f"{kind}.json").read_text())
    return template


def read_deployment(client: SyncPrefectClient, flow: str) -> Any:
    """Return the deployment of a flow.

    Raises:
        EnvironmentFault: The server has no deployment of this flow.
    """
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(f"{flow}/{flow}")
    except ObjectNotFound as error:
        raise EnvironmentFault(
            f"the server has no deployment {flow}/{flow}",
            f"start `shardmill up`, or register them: prefect deploy --all --prefect-file {prefect_file()}",
        ) from error
