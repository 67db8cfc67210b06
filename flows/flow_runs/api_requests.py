"""Requests to Prefect's API: pages of an answer, runs in progress, kept values, the runs of Shardmill.

Every run of a flow of this package has the tag "shardmill": from its deployment, or from itself when it
begins.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from shardmill.infra.processes.ports import open_url

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.objects import FlowRun
    from prefect.client.schemas.responses import DeploymentResponse

T = TypeVar("T")

_PAGE = 200  # Prefect gives no more at once


@contextlib.contextmanager
def prefect_client() -> Iterator[SyncPrefectClient]:
    """Yield a client of the server that the environment names when Prefect is first imported."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        yield client


def answers(api_url: str, timeout_seconds: float = 2.0) -> bool:
    """Tell whether a Prefect API answers at ``api_url``, be it only by asking for a password."""
    try:
        with get(f"{api_url.rstrip('/')}/health", timeout_seconds) as answer:
            return bool(answer.read(100).strip() == b"true")
    except urllib.error.HTTPError as error:
        error.close()
        return error.code in (401, 403)
    except (OSError, ValueError, http.client.HTTPException):
        return False


def lets_in(api_url: str, auth: str | None, timeout_seconds: float = 10.0) -> bool:
    """Tell whether the Prefect API at ``api_url`` accepts this password (``user:password``, or None)."""
    try:
        with get(f"{api_url.rstrip('/')}/hello", timeout_seconds, auth):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code not in (401, 403)
    except (OSError, http.client.HTTPException):  # it is going down; the next request says so
        return True


def get(url: str, timeout_seconds: float, auth: str | None = None) -> http.client.HTTPResponse:
    """Get an address, with a password as ``user:password``."""
    request = urllib.request.Request(url)
    if auth:
        request.add_header("Authorization", f"Basic {base64.b64encode(auth.encode()).decode('ascii')}")
    return open_url(request, timeout_seconds)


def all_pages(read: Callable[[int, int], Sequence[T]]) -> list[T]:
    """The items of all pages.

    Args:
        read: returns the items of a page; called with the largest number of them, and the number before it.
    """
    found: list[T] = []
    while len(found) % _PAGE == 0:
        page = read(_PAGE, len(found))
        if not page:
            break
        found += page
    return found


def run_filter(**wanted: Any) -> FlowRunFilter:
    """Return Prefect's filter of flow runs.

    Args:
        wanted: its fields in the form of JSON, such as ``end_time={"after_": since}``.
    """
    from prefect.client.schemas.filters import FlowRunFilter

    return FlowRunFilter.model_validate(wanted)


def in_states(*types: str) -> dict[str, Any]:
    """The field ``state`` of a filter of runs in states of these types."""
    return {"type": {"any_": types}}


# Fields of a filter: runs that have begun and not ended; runs that have ended in any way; Shardmill's own.
IN_PROGRESS = {"state": in_states("RUNNING", "PENDING", "CANCELLING")}
ENDED = {"state": in_states("COMPLETED", "FAILED", "CRASHED", "CANCELLED")}
OWN_TAG = "shardmill"
OWN = {"tags": {"all_": [OWN_TAG]}}


def set_variable(client: SyncPrefectClient, name: str, value: dict[str, Any], tag: str) -> None:
    """Create a variable of Prefect, or replace its value."""
    from prefect.client.schemas.actions import VariableCreate, VariableUpdate

    if client.read_variable_by_name(name) is None:
        client.create_variable(VariableCreate(name=name, value=value, tags=[tag]))
    else:
        client.update_variable(VariableUpdate(name=name, value=value))


def read_secrets(client: SyncPrefectClient, prefix: str) -> dict[str, Any]:
    """Return name -> value of all blocks of ``keep_secret`` whose name begins with a prefix."""
    return {row["name"]: row["data"]["value"] for row in _rows(client, prefix) if "value" in row["data"]}


def keep_secret(name: str, value: Any) -> None:
    """Keep a JSON-able value of any size, encrypted, in a block of Prefect in the place of an earlier one."""
    from prefect.blocks.system import Secret

    Secret(value=value).save(name, overwrite=True)


def forget_secret(client: SyncPrefectClient, name: str) -> bool:
    """Delete the block of a name, of whatever type; tell whether there was one."""
    rows = [row for row in _rows(client, name) if row["name"] == name]
    for row in rows:
        client.delete_block_document(row["id"])
    return bool(rows)


def read_block(client: SyncPrefectClient, name: str) -> dict[str, Any] | None:
    """The fields of the block of a name, of whatever type, with its secrets; None if there is none."""
    found = [row["data"] for row in _rows(client, name) if row["name"] == name]
    return dict(found[0]) if found else None


def _rows(client: SyncPrefectClient, prefix: str) -> list[dict[str, Any]]:
    def page(limit: int, offset: int) -> list[dict[str, Any]]:
        wanted = {
            "block_documents": {"name": {"like_": prefix}},
            "include_secrets": True,
            "limit": limit,
            "offset": offset,
        }
        answer = client.request("POST", "/block_documents/filter", json=wanted).raise_for_status()
        rows: list[dict[str, Any]] = answer.json()
        return rows

    return [row for row in all_pages(page) if row["name"].startswith(prefix)]


_FLOWS = ("prepare", "train", "train_torch", "evaluate", "promote", "pipeline", "maintain")
_ENTRYPOINTS = {f"shardmill.flows.{name}.{name}" for name in _FLOWS}
# Entrypoint of release 0.1.0 -> of this one.
_EARLIER = {name.removeprefix("shardmill."): name for name in _ENTRYPOINTS}


def tag_as_own(run: FlowRun) -> None:
    """Tag a run as one of Shardmill, unless its deployment has done so. It goes on without if nobody answers.

    ``prefect.tags`` would give the tag to its tasks too. Before each task with a tag, Prefect requests a
    concurrency slot from the server, and the run fails if the server is away at that moment.
    """
    import httpx
    from prefect.exceptions import PrefectException

    if OWN_TAG in run.tags:
        return
    with contextlib.suppress(httpx.HTTPError, PrefectException), prefect_client() as client:
        client.update_flow_run(run.id, tags=[*run.tags, OWN_TAG])


def own_deployments(client: SyncPrefectClient, deployments: Iterable[UUID]) -> set[UUID]:
    """Return the deployments that run a flow of this package."""
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId

    own, wanted = set(), sorted(set(deployments))
    for start in range(0, len(wanted), _PAGE):
        ids = DeploymentFilterId(any_=wanted[start : start + _PAGE])
        found = client.read_deployments(deployment_filter=DeploymentFilter(id=ids), limit=_PAGE)
        own |= {one.id for one in found if one.entrypoint in _ENTRYPOINTS or _is_of_earlier_release(one)}
    return own


def renew_entrypoints(client: SyncPrefectClient) -> list[str]:
    """Let deployments of an earlier release run the flows of this one; return their names.

    They come from files of the user; our own are registered again from ``prefect.yaml``. Schedules and
    parameters stay.
    """
    from prefect.client.schemas.actions import DeploymentUpdate

    found = all_pages(lambda limit, offset: client.read_deployments(limit=limit, offset=offset))
    earlier = [one for one in found if _is_of_earlier_release(one)]
    for one in earlier:
        client.update_deployment(one.id, DeploymentUpdate(entrypoint=_EARLIER[str(one.entrypoint)]))
    return [one.name for one in earlier]


def _is_of_earlier_release(deployment: DeploymentResponse) -> bool:
    return deployment.entrypoint in _EARLIER and OWN_TAG in deployment.tags
