"""Release concurrency slots of Shardmill's deployments that no run holds any more.

Prefect counts the runs that hold a slot of their deployment, and keeps a lease for each. If a process or
server is killed at the wrong moment, the count can stay above the number of runs. Then all later runs wait
for ever. A surplus slot is released after three looks in a row, since a run may begin or end between the two
requests of a look. A deployment with one slot, whose run was killed after the first look::

    look   slots taken   runs begun   surplus
       1             1            1         0
       2             1            0         1
       3             1            0         1
       4             1            0         1     one slot is released

When a lease expires, Prefect releases its slots even if somebody has released them before. So a slot is
released through its lease, which Prefect then forgets. Prefect's API cannot list leases, but the states of a
run name the run's lease. A slot without a known lease is released by number; on a server where leases expire,
only after all its leases have expired.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from shardmill.flows.flow_runs.api_requests import ENDED, IN_PROGRESS, all_pages, own_deployments, run_filter

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_LOOKS = 3
# A surplus slot was mostly held by one of the last runs.
_ENDED_RUNS = 20
# Prefect's leases live for 300 s, unless a server or a deployment is set otherwise. Then Prefect releases
# their slots within seconds.
_LEASE_SECONDS = 900.0
_OF_DEPLOYMENT = "deployment:"


@dataclass
class _Surplus:
    """The slots of a deployment that are taken beyond the runs that may hold them.

    Attributes:
        since: the time of the first look that found any.
        at_looks: their number at each of the last looks.
    """

    since: float
    at_looks: list[int] = field(default_factory=list)


class Slots:
    """Remembers how many concurrency slots were taken beyond the runs that may hold them.

    Args:
        leases_expire: whether the server releases slots whose lease has expired.
        clock: the time in seconds.
    """

    def __init__(self, *, leases_expire: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._leases_expire = leases_expire
        self._clock = clock
        self._surplus: dict[UUID, _Surplus] = {}

    def give_back(self, client: SyncPrefectClient) -> int:
        """Look once; release slots that were surplus at the last looks; return their number."""
        taken = _taken(client)
        begun = _begun_runs(client) if taken else {}
        found = {one: slots - begun.get(one, 0) for one, slots in taken.items() if slots > begun.get(one, 0)}
        self._surplus = {one: self._surplus.get(one) or _Surplus(self._clock()) for one in found}
        released = 0
        for deployment, surplus in list(self._surplus.items()):
            surplus.at_looks = [*surplus.at_looks, found[deployment]][-_LOOKS:]
            if len(surplus.at_looks) == _LOOKS:
                released += self._release(client, deployment, min(surplus.at_looks), surplus.since)
        return released

    def _release(self, client: SyncPrefectClient, deployment: UUID, slots: int, since: float) -> int:
        released = _release_by_lease(client, deployment, slots)
        if released == 0 and (not self._leases_expire or self._clock() - since > _LEASE_SECONDS):
            name = f"{_OF_DEPLOYMENT}{deployment}"
            client.release_concurrency_slots([name], slots, occupancy_seconds=1.0)
            released = slots
        if released > 0:
            del self._surplus[deployment]  # a run may hold several slots: count the others again
        return released


def _release_by_lease(client: SyncPrefectClient, deployment: UUID, slots: int) -> int:
    """Release concurrency slots whose lease belongs to a run that has ended; return their number."""
    released = 0
    before = _taken(client).get(deployment, 0)
    for lease in _leases_of_ended_runs(client, deployment):
        if released >= slots:
            break
        client.release_concurrency_slots_with_lease(lease)  # a lease that is gone changes nothing
        after = _taken(client).get(deployment, 0)
        released, before = released + max(0, before - after), after
    return released


def _leases_of_ended_runs(client: SyncPrefectClient, deployment: UUID) -> Iterator[UUID]:
    """The leases that the last runs of a deployment had, also those that are gone."""
    from prefect.client.schemas.sorting import FlowRunSort

    ended = client.read_flow_runs(
        flow_run_filter=run_filter(deployment_id={"any_": [deployment]}, **ENDED),
        sort=FlowRunSort.END_TIME_DESC,
        limit=_ENDED_RUNS,
    )
    for run in ended:
        states = client.read_flow_run_states(run.id)
        named = (state.state_details.deployment_concurrency_lease_id for state in states)
        yield from sorted({lease for lease in named if lease is not None})


def _taken(client: SyncPrefectClient) -> dict[UUID, int]:
    """Deployment of Shardmill -> its concurrency slots that are taken, if any are."""
    limits = all_pages(
        lambda limit, offset: client.read_global_concurrency_limits(limit=limit, offset=offset)
    )
    taken = {
        UUID(limit.name.removeprefix(_OF_DEPLOYMENT)): int(limit.active_slots)
        for limit in limits
        if limit.active_slots > 0 and limit.name.startswith(_OF_DEPLOYMENT)
    }
    own = own_deployments(client, taken)
    return {deployment: slots for deployment, slots in taken.items() if deployment in own}


def _begun_runs(client: SyncPrefectClient) -> Mapping[UUID, int]:
    """Deployment -> number of its runs that have begun and not ended: each may hold a slot."""
    wanted = run_filter(**IN_PROGRESS)
    runs = all_pages(
        lambda limit, offset: client.read_flow_runs(flow_run_filter=wanted, limit=limit, offset=offset)
    )
    return Counter(run.deployment_id for run in runs if run.deployment_id is not None)
