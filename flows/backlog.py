"""One waiting run a schedule is enough.

A deployment runs one at a time, and the next waits (infra/deploy/prefect.yaml). A schedule goes on firing
while a long run holds the place, or while `shardmill up` is down; each of those runs would do the same as the
first of them, so the others are cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from infra.digests import digest_of

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

_WAITING = ("AwaitingConcurrencySlot", "Late")
_MESSAGE = "A run of the same schedule was waiting already"
_PAGE = 200


def cancel_superfluous(pool: str) -> int:
    """Cancel the scheduled runs that wait in ``pool`` behind one of the same parameters; how many."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateName,
        WorkPoolFilter,
        WorkPoolFilterName,
    )
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.states import Cancelled

    with get_client(sync_client=True) as client:
        waiting = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                state=FlowRunFilterState(name=FlowRunFilterStateName(any_=list(_WAITING)))
            ),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
            limit=_PAGE,
        )
        extra = superfluous(waiting)
        for run in extra:
            state: Any = Cancelled(message=_MESSAGE)
            client.set_flow_run_state(run.id, state)
    return len(extra)


def superfluous(waiting: Iterable[FlowRun]) -> list[FlowRun]:
    """Of runs that wait, those that a schedule made and that stand behind one of the same kind."""
    seen: set[str] = set()
    extra = []
    for run in waiting:
        if not run.auto_scheduled:
            continue
        kind = digest_of([str(run.deployment_id), run.parameters])
        if kind in seen:
            extra.append(run)
        seen.add(kind)
    return extra
