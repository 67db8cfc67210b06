"""A service is started again when it ends, until it has ended too often."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from shardmill.flows.problems import open_problems
from shardmill.flows.server.kept_service import KeptService
from shardmill.flows.server.services import Service
from shardmill.infra.errors import EnvironmentFault


class Ended(Service):
    """A service whose process has ended, and says why in its log."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        log_path.write_text("why it ended")
        self.process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
        self.process.wait()

    def stop(self) -> None:
        """Nothing is left of it."""


class Hanging(Service):
    """A service whose process runs, and whose sign of life is a text of the test."""

    def __init__(self, log_path: Path) -> None:
        self.log_path, self.sign, self.is_stopped = log_path, "first", False

    def stop(self) -> None:
        self.is_stopped = True

    @property
    def has_ended(self) -> bool:
        return False

    def sign_of_life(self) -> object:
        return self.sign


class Kept:
    """A kept service whose process always ends, with a clock that the test moves on."""

    def __init__(self, log: Path, *, is_optional: bool = False) -> None:
        self.now, self.starts, self.said, self.away = 0.0, 0, list[str](), ""
        self._log = log
        self.service = KeptService(
            "the fake",
            self._start,
            self.said.append,
            need=self._need,
            is_optional=is_optional,
            clock=lambda: self.now,
        )

    def _start(self) -> Service:
        self.starts += 1
        return Ended(self._log)

    def _need(self) -> None:
        if self.away:
            raise EnvironmentFault(self.away, "wait")

    def keep(self, seconds: float) -> None:
        """Look at it once, after so long."""
        self.now += seconds
        self.service.keep()


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "log")


def test_it_is_started_again_a_moment_later(kept: Kept) -> None:
    kept.service.begin()
    kept.keep(60)
    assert kept.starts == 1
    assert kept.said[0].startswith("the fake ended with status 7; starting it again (see ")
    kept.keep(5)
    assert kept.starts == 2


def test_it_is_given_up_after_three_short_lives(kept: Kept) -> None:
    kept.service.begin()
    for _ in range(4):
        kept.keep(5)
    assert kept.starts == 3
    with pytest.raises(EnvironmentFault, match="the fake ended with status 7; it last said:\nwhy it ended"):
        kept.keep(5)


def test_a_service_that_ended_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Ended(tmp_path / "log")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(EnvironmentFault, match=f"the fake ended; the disk of {tmp_path} is full"):
        ended.check("the fake")


def test_long_lives_are_not_counted(kept: Kept) -> None:
    kept.service.begin()
    for _ in range(20):
        kept.keep(60)
    assert kept.starts == 11, "each look finds it ended, or starts it again"


def test_the_platform_goes_on_without_an_optional_one(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "log", is_optional=True)
    kept.service.begin()
    for _ in range(20):
        kept.keep(5)
    assert kept.starts == 3
    assert kept.service.is_given_up
    assert "again and again; the platform goes on without it" in kept.said[-1]


def test_it_waits_for_what_it_needs_and_says_so_once(kept: Kept) -> None:
    kept.away = "the database does not answer"
    for _ in range(5):
        kept.keep(60)
    assert (kept.starts, kept.said) == (0, ["the fake starts later: the database does not answer"])
    kept.away = ""
    kept.keep(60)
    assert kept.starts == 1


def test_a_service_that_hangs_is_told_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    now, said, started = [0.0], list[str](), list[Hanging]()

    def start() -> Service:
        started.append(Hanging(tmp_path / "log"))
        return started[-1]

    service = KeptService("the fake", start, said.append, clock=lambda: now[0])

    def keep(seconds: float) -> None:
        now[0] += seconds
        service.keep()
        probing = [thread for thread in threading.enumerate() if thread.name == "the fake"]
        for thread in probing:
            thread.join()

    service.begin()
    for number in range(20):
        started[0].sign = f"sign {number}"
        keep(6)
    keep(1000)  # `up` itself was stopped meanwhile
    for _ in range(6):
        keep(6)
    assert not started[0].is_stopped
    keep(6)
    assert started[0].is_stopped
    (problem,) = open_problems()
    assert problem.text == "the fake hangs: no sign of life for 40 s"
    assert said[0].startswith(f"{problem.text}; starting it again")
    keep(6)
    keep(6)
    assert len(started) == 2
    assert open_problems() == [], "it shows signs of life again"


def test_a_service_may_take_minutes_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    now, process = [0.0], Hanging(tmp_path / "log")
    monkeypatch.setattr(process, "sign_of_life", lambda: None)
    service = KeptService("the fake", lambda: process, lambda _: None, clock=lambda: now[0])
    service.begin()
    for now[0] in range(0, 300, 6):
        service.keep()
    assert not process.is_stopped
    now[0] = 301.0
    service.keep()
    assert process.is_stopped
