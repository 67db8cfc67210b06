"""Cancel scheduled runs that wait behind an identical one.

A deployment runs once at a time, and the next run waits (infra/deploy/prefect.yaml). A schedule continues to
create runs while a long run works, or while `shardmill up` is down. All of these would do the same as the
first one, so the others are cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from infra.digests import digest_of

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

_WAITING = ("AwaitingConcurrencySlot", "Late")
_MESSAGE = "A run of the same schedule already waits"
_PAGE = 200


def cancel_superfluous(pool: str) -> int:
    """Cancel scheduled runs that wait in ``pool`` behind one of the same parameters; return their number."""
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
    """The scheduled runs among ``waiting`` that stand behind a run of the same deployment and parameters."""
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
