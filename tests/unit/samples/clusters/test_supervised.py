"""Services that die are started again, and none outlives its supervisor."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.ports import free_port
from tests.samples.clusters import supervised as services
from tests.samples.clusters.supervised import Service, Supervisor, require_free
from tests.samples.waiting import eventually

SLEEP = (sys.executable, "-c", "import time; print('awake', flush=True); time.sleep(1e6)")


def test_a_killed_service_is_started_again_and_its_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "RESTART_SECONDS", 0.0)
    lines: list[str] = []
    supervisor = Supervisor(tmp_path, lines.append)
    try:
        supervisor.start(Service("sleeper", SLEEP))
        log = tmp_path / "sleeper.log"
        assert eventually(lambda: log.read_text() == "awake\n")
        first = supervisor.pids["sleeper"]
        os.kill(first, signal.SIGKILL)
        assert eventually(supervisor.look)
        assert supervisor.pids["sleeper"] != first
        assert eventually(lambda: log.read_text() == "awake\nawake\n")
        last = supervisor.pids["sleeper"]
    finally:
        supervisor.close()
    assert not psutil.pid_exists(last)
    assert "sleeper: ended by SIGKILL" in lines


def test_a_service_that_keeps_dying_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "RESTART_SECONDS", 0.0)
    supervisor = Supervisor(tmp_path, lambda _: None)
    supervisor.start(Service("broken", ("sh", "-c", "echo no port; exit 3")))
    with pytest.raises(EnvironmentFault, match=r"ended 5 times .* status 3.*\n?no port"):
        eventually(lambda: supervisor.look() and False)
    supervisor.close()


def test_a_service_dies_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import json, sys, time; from pathlib import Path; from tests.samples.clusters.supervised import *\n"
        f"one = Supervisor(Path({str(tmp_path)!r}), lambda _: None)\n"
        f"one.start(Service('sleeper', {SLEEP!r}))\n"
        "print(json.dumps(one.pids), flush=True); time.sleep(1e6)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        (pid,) = json.loads(process.stdout.readline()).values()
        service = psutil.Process(pid)
        process.kill()
        assert eventually(lambda: not service.is_running() or service.status() == psutil.STATUS_ZOMBIE)


def test_a_taken_port_is_named_with_its_option() -> None:
    port = free_port("127.0.0.1", "127.0.0.2")
    require_free("127.0.0.2", port, "--job-port")
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", port))
        taken.listen()
        with pytest.raises(EnvironmentFault, match="--job-port"):
            require_free("127.0.0.2", port, "--job-port")


def test_a_program_that_cannot_be_started_is_named_and_the_others_end(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, lambda _: None)
    supervisor.start(Service("sleeper", SLEEP))
    pid = supervisor.pids["sleeper"]
    with pytest.raises(EnvironmentFault, match="nothing cannot be started"):
        supervisor.start(Service("nothing", (str(tmp_path / "no-program"),)))
    supervisor.close()
    assert not psutil.pid_exists(pid)
