"""The files of runs in progress, seen from other containers and other machines."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from shardmill.flows import home
from shardmill.flows.flow_runs import lost_runs
from shardmill.infra.storage.locking import kernel
from tests.samples.waiting import before_its_end

_SERVER = "http://127.0.0.1:1/api"
_HOLD = """
import sys, time
from uuid import UUID
from shardmill.flows.flow_runs.lost_runs import hold_until_exit
hold_until_exit(UUID(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", _SERVER)
    monkeypatch.delenv("PREFECT_HOME", raising=False)


@pytest.mark.parametrize(
    ("lines", "is_lost"),
    [
        ([_SERVER, f"kernel {kernel()}", "host another-container"], True),
        ([_SERVER, "kernel before-the-restart", f"host {socket.gethostname()}"], True),
        ([_SERVER, "kernel elsewhere", "host another-machine"], False),
        (["http://another.example/api", f"kernel {kernel()}", f"host {socket.gethostname()}"], False),
        ([_SERVER], True),  # by an earlier release
    ],
)
def test_an_unlocked_file_is_of_a_lost_run_if_it_is_of_this_machine(lines: list[str], is_lost: bool) -> None:
    path = home.running_folder() / str(uuid4())
    path.write_text("\n".join(lines))
    assert lost_runs.lost_commands() == ([path] if is_lost else [])


def test_a_run_in_another_container_is_lost_once_its_process_is_gone() -> None:
    container = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*container, "true"], check=False).returncode != 0:
        pytest.skip("NO NAMESPACES: this user may not make them with unshare")
    run = uuid4()
    command = ["sh", "-c", 'hostname a-container && exec "$@"', "sh", sys.executable, "-c", _HOLD, str(run)]
    with subprocess.Popen([*container, *command], stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        before_its_end(
            lambda: process.stdout.read() if process.stdout else None, lambda: process.poll() is not None
        )
        path = home.running_folder() / str(run)
        assert "host a-container" in path.read_text().splitlines()
        assert lost_runs.lost_commands() == [], "its lock is seen"
        process.kill()
    assert before_its_end(lambda: lost_runs.lost_commands() or None, lambda: False) == [path]
