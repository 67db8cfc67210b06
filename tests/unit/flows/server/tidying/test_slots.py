"""Concurrency slots that no run holds are released, by their lease where it is known, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from shardmill.flows.server.tidying.slots import Slots

DEPLOYMENT, RUN, LEASE = UUID(int=1), UUID(int=2), UUID(int=3)
NAME = f"deployment:{DEPLOYMENT}"
MINUTE = 60.0


class Api:
    """A Prefect API with one limit, the runs of its deployment and a lease, in the place of its client."""

    def __init__(
        self,
        name: str = NAME,
        entrypoint: str = "shardmill.flows.prepare.prepare",
        *,
        has_lease: bool = False,
    ) -> None:
        self.name, self.entrypoint = name, entrypoint
        self.taken, self.running = 0, 0
        self.leases = {LEASE} if has_lease else set()
        self.given_without_lease = 0

    def read_global_concurrency_limits(self, **_: object) -> list[Any]:
        return [SimpleNamespace(id=DEPLOYMENT, name=self.name, active_slots=self.taken)]

    def read_deployments(self, **_: object) -> list[Any]:
        return [SimpleNamespace(id=DEPLOYMENT, entrypoint=self.entrypoint)]

    def read_flow_runs(self, flow_run_filter: Any, **_: object) -> list[Any]:
        if flow_run_filter.deployment_id is not None:
            return [SimpleNamespace(id=RUN)]
        return [SimpleNamespace(deployment_id=DEPLOYMENT)] * self.running

    def read_flow_run_states(self, run: UUID) -> list[Any]:
        assert run == RUN
        named = (None, LEASE, LEASE)
        return [
            SimpleNamespace(state_details=SimpleNamespace(deployment_concurrency_lease_id=lease))
            for lease in named
        ]

    def release_concurrency_slots_with_lease(self, lease: UUID) -> None:
        self.expire(lease)

    def release_concurrency_slots(self, names: list[str], slots: int, occupancy_seconds: float) -> None:
        assert names == [self.name]
        assert occupancy_seconds > 0
        self.taken -= slots
        self.given_without_lease += slots

    def expire(self, lease: UUID) -> None:
        """Do what Prefect does when a lease expires: release its slots, once."""
        if lease in self.leases:
            self.leases.remove(lease)
            self.taken = max(0, self.taken - 1)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def given_back(api: Api, looks: list[tuple[int, int]]) -> int:
    """Compare the taken slots with the running runs, several times; return the number of released slots."""
    slots = Slots(leases_expire=False)
    total = 0
    for api.taken, api.running in looks:
        total += slots.give_back(api)  # type: ignore[arg-type]
    return total


@pytest.mark.parametrize(
    ("looks", "places"),
    [
        ([(1, 0), (1, 0), (1, 0)], 1),
        ([(3, 1), (3, 1), (3, 1)], 2),
        ([(1, 0), (1, 0)], 0),  # a run that has just ended
        ([(1, 0), (1, 1), (1, 0), (1, 0)], 0),  # each time another run
        ([(1, 0), (0, 0), (1, 0), (1, 0)], 0),
        ([(1, 1), (1, 1), (1, 1), (1, 1)], 0),
    ],
)
def test_a_place_is_given_back_once_nobody_held_it_several_times(
    looks: list[tuple[int, int]], places: int
) -> None:
    assert given_back(Api(), looks) == places


def test_a_limit_of_the_users_own_is_left_alone() -> None:
    assert given_back(Api("gpu"), [(1, 0)] * 5) == 0


@pytest.mark.parametrize("entrypoint", ["reports.hourly", "flows.nightly.report", None])
def test_a_deployment_of_others_is_left_alone(entrypoint: Any) -> None:
    assert given_back(Api(entrypoint=entrypoint), [(1, 0)] * 5) == 0


@pytest.mark.parametrize("leases_expire", [True, False])
def test_a_place_goes_back_by_its_lease_so_that_its_expiry_takes_no_other(leases_expire: bool) -> None:
    api = Api(has_lease=True)
    slots = Slots(leases_expire=leases_expire)
    api.taken = 1
    assert [slots.give_back(api) for _ in range(3)] == [0, 0, 1]  # type: ignore[arg-type]
    assert (api.taken, api.given_without_lease) == (0, 0)
    api.taken = api.running = 1  # the next run begins
    api.expire(LEASE)
    assert api.taken == 1, "the place of the next run"


def test_a_place_without_a_known_lease_waits_until_any_lease_of_it_has_expired() -> None:
    api, clock = Api(), Clock()
    slots = Slots(leases_expire=True, clock=clock)
    api.taken = 1
    for clock.seconds in (0.0, MINUTE, 2 * MINUTE, 14 * MINUTE):
        assert slots.give_back(api) == 0  # type: ignore[arg-type]
    clock.seconds = 16 * MINUTE
    assert slots.give_back(api) == 1  # type: ignore[arg-type]
