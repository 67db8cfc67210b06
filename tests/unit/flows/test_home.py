"""The state of `shardmill up`: it counts while its process lives, and not a moment longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows import home
from flows.home import RunningUp
from infra.errors import EnvironmentFault, LockedError

UP = RunningUp(pid=1, host="127.0.0.1", port=4200, root="/d", runs="/r")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))


def test_it_is_known_while_it_holds_its_lock() -> None:
    assert home.running_up() is None
    with home.up_lock():
        assert home.running_up() is None, "not before it is healthy"
        home.write_running_up(UP)
        assert home.running_up() == UP
        home.clear_running_up()
        assert home.running_up() is None


def test_what_a_killed_one_left_behind_does_not_count() -> None:
    holder = "from flows import home\nwith home.up_lock():\n    print('held', flush=True)\n    input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        home.write_running_up(UP)
        assert home.running_up() == UP
        process.kill()
    assert home.running_up() is None


def test_only_one_runs_at_a_time() -> None:
    with home.up_lock():
        home.write_running_up(UP)
        with pytest.raises(LockedError, match=r"process 1\) at http://127.0.0.1:4200"), home.up_lock():
            pass


def test_a_broken_state_file_is_no_state() -> None:
    with home.up_lock():
        (home.home() / "up.json").write_text('{"pid": 3}')
        assert home.running_up() is None


def test_a_home_that_cannot_be_used_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("SHARDMILL_HOME", str(place))
        with pytest.raises(EnvironmentFault, match="file") as raised:
            home.logs_folder()
        assert raised.value.remedy == "set SHARDMILL_HOME to a folder that you can write to"


def test_a_home_without_permission_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(EnvironmentFault, match="cannot be written to"):
        home.home()


@pytest.mark.parametrize("below", ["logs", "prefect", "up.lock"])
def test_what_stands_in_the_way_in_the_home_is_named(below: str) -> None:
    blocked = home.home() / below
    if below == "up.lock":
        blocked.mkdir()
    else:
        blocked.touch()
    with pytest.raises(EnvironmentFault, match=below):
        use_everything()


def use_everything() -> None:
    home.logs_folder()
    home.prefect_environment()
    with home.up_lock():
        pass


def test_loopback_goes_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert home.quiet_environment()["NO_PROXY"] == "example.org,127.0.0.1,localhost"
