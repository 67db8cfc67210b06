"""Tell the runs and deployments of Shardmill from those of others on the same Prefect server.

Every run of a flow of this package has the tag "shardmill": from its deployment, or from itself when it
begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from shardmill.flows.flow_runs.api_requests import all_pages

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.filters import FlowRunFilterTags
    from prefect.client.schemas.objects import FlowRun
    from prefect.client.schemas.responses import DeploymentResponse

OWN_TAG = "shardmill"

_FLOWS = ("prepare", "train", "train_torch", "evaluate", "promote", "pipeline", "maintain")
_ENTRYPOINTS = {f"shardmill.flows.{name}.{name}" for name in _FLOWS}
# Entrypoint of release 0.1.0 -> of this one.
_EARLIER = {name.removeprefix("shardmill."): name for name in _ENTRYPOINTS}
_PAGE = 200


def own_runs() -> FlowRunFilterTags:
    """The filter of Prefect's API that finds the runs of Shardmill."""
    from prefect.client.schemas.filters import FlowRunFilterTags

    return FlowRunFilterTags(all_=[OWN_TAG])


def tag_as_own(run: FlowRun) -> None:
    """Tag a run as one of Shardmill, unless its deployment has done so. It goes on without if nobody answers.

    ``prefect.tags`` would give the tag to its tasks too. Before each task with a tag, Prefect requests a
    concurrency slot from the server, and the run fails if the server is away at that moment.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException

    if OWN_TAG in run.tags:
        return
    with contextlib.suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
        client.update_flow_run(run.id, tags=[*run.tags, OWN_TAG])


def own_deployments(client: SyncPrefectClient, deployments: Iterable[UUID]) -> set[UUID]:
    """Those of ``deployments`` that run a flow of this package."""
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId

    own, wanted = set(), sorted(set(deployments))
    for start in range(0, len(wanted), _PAGE):
        ids = DeploymentFilterId(any_=wanted[start : start + _PAGE])
        found = client.read_deployments(deployment_filter=DeploymentFilter(id=ids), limit=_PAGE)
        own |= {one.id for one in found if one.entrypoint in _ENTRYPOINTS or _is_of_earlier_release(one)}
    return own


def renew_entrypoints(client: SyncPrefectClient) -> list[str]:
    """Let deployments of an earlier release run the flows of this one; return their names.

    Such as those of a file of the user; ``prefect.yaml`` renews its own. Schedules and parameters stay.
    """
    from prefect.client.schemas.actions import DeploymentUpdate

    found = all_pages(lambda limit, offset: client.read_deployments(limit=limit, offset=offset))
    earlier = [one for one in found if _is_of_earlier_release(one)]
    for one in earlier:
        client.update_deployment(one.id, DeploymentUpdate(entrypoint=_EARLIER[str(one.entrypoint)]))
    return [one.name for one in earlier]


def _is_of_earlier_release(deployment: DeploymentResponse) -> bool:
    return deployment.entrypoint in _EARLIER and OWN_TAG in deployment.tags
