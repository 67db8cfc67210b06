"""Places of deployments that no run holds are given back, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from flows.server.tidying.slots import Slots

DEPLOYMENT = UUID(int=1)
NAME = f"deployment:{DEPLOYMENT}"


class Api:
    """A Prefect API with one limit and the runs of its deployment, in the place of its client."""

    def __init__(self, name: str = NAME) -> None:
        self.name, self.taken, self.running = name, 0, 0

    def read_global_concurrency_limits(self, **_: object) -> list[Any]:
        return [SimpleNamespace(id=DEPLOYMENT, name=self.name, active_slots=self.taken)]

    def read_flow_runs(self, **_: object) -> list[Any]:
        return [SimpleNamespace(deployment_id=DEPLOYMENT)] * self.running

    def release_concurrency_slots(self, names: list[str], slots: int, occupancy_seconds: float) -> None:
        assert names == [self.name]
        assert occupancy_seconds > 0
        self.taken -= slots


def given_back(api: Api, looks: list[tuple[int, int]]) -> int:
    """Look at places that are taken and runs that work, in turn; return how many places were given back."""
    slots = Slots()
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
