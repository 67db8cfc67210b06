"""Give back places of deployments that no run holds any more.

Prefect counts the runs that hold a place of their deployment. A server or database that is killed at the
wrong moment can leave the count above the number of runs, and then all later runs wait for ever. Such a count
is lowered once it was seen several times in a row: a run may begin or end between two questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_TIMES = 3
_PAGE = 200


class Slots:
    """Remembers how many places seemed to be held by nobody."""

    def __init__(self) -> None:
        self._unheld: dict[str, list[int]] = {}

    def give_back(self, client: SyncPrefectClient) -> int:
        """Look once; give back what nobody held the last times; return the number of places."""
        limits = {limit.id: limit for limit in client.read_global_concurrency_limits(limit=_PAGE, offset=0)}
        taken = {limit.name for limit in limits.values() if limit.active_slots > 0}
        self._unheld = {name: seen for name, seen in self._unheld.items() if name in taken}
        if not taken:
            return 0
        holders = _holders(client)
        given = 0
        for limit in limits.values():
            if limit.name not in taken or not limit.name.startswith("deployment:"):
                continue
            seen = [*self._unheld.get(limit.name, []), limit.active_slots - holders.get(limit.name, 0)]
            self._unheld[limit.name] = seen[-_TIMES:]
            unheld = min(self._unheld[limit.name])
            if len(self._unheld[limit.name]) == _TIMES and unheld > 0:
                client.release_concurrency_slots([limit.name], unheld, occupancy_seconds=1.0)
                del self._unheld[limit.name]
                given += unheld
        return given


def _holders(client: SyncPrefectClient) -> Mapping[str, int]:
    """Name of the limit of a deployment -> runs that may hold a place of it."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType

    begun = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    found: dict[str, int] = {}
    offset = 0
    while True:
        page = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=begun))),
            limit=_PAGE,
            offset=offset,
        )
        for run in page:
            name = f"deployment:{run.deployment_id}"
            found[name] = found.get(name, 0) + 1
        if len(page) < _PAGE:
            return found
        offset += _PAGE
