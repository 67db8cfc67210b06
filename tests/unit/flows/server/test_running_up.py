"""The state of `shardmill up`: it counts while its process lives, and not a moment longer."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shardmill.flows.home import home
from shardmill.flows.server.running_up import (
    RunningUp,
    clear_running_up,
    running_up,
    up_lock,
    up_process,
    write_running_up,
)
from shardmill.infra.errors import LockedError

UP = RunningUp(pid=1, host="127.0.0.1", port=4200, root="/d", runs="/r")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))


def test_it_is_known_while_it_holds_its_lock() -> None:
    assert running_up() is None
    with up_lock(process_id=os.getpid()):
        assert running_up() is None, "not before it is healthy"
        write_running_up(UP)
        assert running_up() == UP
        clear_running_up()
        assert running_up() is None


def test_what_a_killed_one_left_behind_does_not_count() -> None:
    holder = (
        "import os; from shardmill.flows.server.running_up import up_lock\n"
        "with up_lock(process_id=os.getpid()):\n    print('held', flush=True)\n    input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        write_running_up(UP)
        assert running_up() == UP
        process.kill()
    assert running_up() is None


def test_only_one_runs_at_a_time() -> None:
    with up_lock(process_id=os.getpid()):
        write_running_up(UP)
        with pytest.raises(LockedError, match=r"process 1\) at http://127.0.0.1:4200"), up_lock():
            pass


def test_a_broken_state_file_is_no_state() -> None:
    with up_lock(process_id=os.getpid()):
        (home() / "up.json").write_text('{"pid": 3}')
        assert running_up() is None


def test_a_process_is_named_only_by_up_itself() -> None:
    assert up_process() is None
    with up_lock(process_id=os.getpid()):
        assert up_process() == os.getpid()
    with up_lock():  # as a restore does, which `shardmill down` must not stop
        assert up_process() is None


def test_a_command_that_looks_at_this_moment_does_not_stop_it() -> None:
    with up_lock():
        pass
    with (home() / "up.lock").open() as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)
        timer = threading.Timer(0.2, fcntl.flock, [looks, fcntl.LOCK_UN])
        timer.start()
        with up_lock():
            timer.join()
