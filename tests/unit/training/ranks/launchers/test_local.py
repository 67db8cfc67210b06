"""Looking for devices that are there again, while ranks train on those that are left."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shardmill.infra.errors import EnvironmentFault
from shardmill.training.ranks.devices import RankCount
from shardmill.training.ranks.launchers.local import LocalHosts
from tests.samples.waiting import eventually


class Driver:
    """A driver that first lists two GPUs, and then does what it is told."""

    def __init__(self) -> None:
        self.looks = 0
        self.answer: Callable[[], list[str]] = lambda: ["0", "1"]

    def __call__(self) -> list[str]:
        answer = self.answer()
        self.looks += 1
        return answer


@pytest.fixture
def driver() -> Driver:
    return Driver()


def hosts(driver: Driver, least: int = 2, most: int = 4) -> LocalHosts:
    return LocalHosts(RankCount(least, most), "all", driver, look_seconds=0.0)


def raising() -> list[str]:
    raise EnvironmentFault("nvidia-smi does not answer")


@pytest.mark.parametrize(
    ("answer", "more"), [(["0", "1"], False), (["0"], False), ([], False), (["0", "1", "2"], True)]
)
def test_only_more_devices_count(driver: Driver, answer: list[str], more: bool) -> None:
    place = hosts(driver)
    used = place.choose()
    driver.answer = lambda: answer
    before = driver.looks
    assert eventually(lambda: place.has_more_than(used) or driver.looks > before + 2)
    assert place.has_more_than(used) is more


def test_a_driver_that_fails_or_is_silent_disturbs_no_training(driver: Driver) -> None:
    place = hosts(driver)
    used = place.choose()
    asked, answered = threading.Event(), threading.Event()

    def silent() -> list[str]:
        asked.set()
        answered.wait()
        return raising()

    driver.answer = silent
    try:
        assert eventually(lambda: asked.is_set() or place.has_more_than(used))
        assert not place.has_more_than(used), "it does not wait for the answer"
    finally:
        driver.answer = lambda: ["0", "1", "2"]
        answered.set()
    assert eventually(lambda: place.has_more_than(used)), "the next look finds the device"


def test_a_device_that_is_gone_again_is_forgotten(driver: Driver) -> None:
    place = hosts(driver)
    used = place.choose()
    driver.answer = lambda: ["0", "1", "2"]
    assert eventually(lambda: place.has_more_than(used))
    driver.answer = lambda: ["0", "1"]
    assert len(place.choose()) == 2
    assert not place.has_more_than(used)
