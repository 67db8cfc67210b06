"""`shardmill up --auth`: our own commands know the password; everybody else is told that one is needed."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.prefect_server.jobs import fake_prepare
from tests.prefect_server.server import RunningServer, run_command, started_up, user_environment

pytestmark = pytest.mark.slow

AUTH = "team:a-secret-of-the-test"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with started_up(tmp_path_factory.mktemp("locked"), "--auth", AUTH) as server:
        yield server


def test_nobody_gets_in_without_it(locked: RunningServer, tmp_path: Path) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        locked.get("/admin/version")
    with refused.value as answer:
        assert answer.code == 401

    elsewhere = user_environment(tmp_path / "home") | {"PREFECT_API_URL": locked.api_url}
    command = fake_prepare("works", tmp_path, "locked")
    without = run_command(command, elsewhere, timeout=300)
    wrong = run_command(command, elsewhere | {"PREFECT_API_AUTH_STRING": "team:wrong"}, timeout=300)
    assert (without.returncode, wrong.returncode) == (4, 4)
    assert without.stderr.splitlines() == [
        f"error: the Prefect server at PREFECT_API_URL={locked.api_url} asks for a password",
        "remedy: set PREFECT_API_AUTH_STRING=user:password, as the server was started with",
    ]
    assert "does not accept the password in PREFECT_API_AUTH_STRING" in wrong.stderr

    right = run_command(command, elsewhere | {"PREFECT_API_AUTH_STRING": AUTH}, timeout=300)
    assert right.returncode == 0, right.stderr


def test_the_page_and_what_is_behind_it_ask_too(locked: RunningServer) -> None:
    for path in ("/", "/metrics", "/tensorboard/data/runs"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{locked.page_url}{path}")
        with refused.value as answer:
            assert answer.code == 401
    token = base64.b64encode(AUTH.encode()).decode()
    request = urllib.request.Request(f"{locked.page_url}/", headers={"Authorization": f"Basic {token}"})

    def names_the_worker() -> bool:  # the worker may have begun a moment ago
        with urllib.request.urlopen(request) as answer:
            return b"ProcessWorker" in answer.read()

    assert locked.comes_true(names_the_worker, 60), "the page itself got into Prefect"


def test_our_own_commands_and_the_worker_know_it(locked: RunningServer, tmp_path: Path) -> None:
    done = run_command(fake_prepare("works", tmp_path, "own"), locked.env, timeout=300)
    assert done.returncode == 0, done.stderr
    assert locked.ui_url in done.stderr, "it ran on this server"
    status = locked.shardmill("status", "--json")
    assert json.loads(status.stdout.splitlines()[-1])["running"]
    services = psutil.Process(locked.pid).children()
    assert any("worker" in service.cmdline() for service in services), "the worker got in"


def test_only_its_user_can_read_it(locked: RunningServer) -> None:
    state = Path(locked.env["SHARDMILL_HOME"]) / "up.json"
    assert state.stat().st_mode & 0o077 == 0
    family = [psutil.Process(locked.pid), *psutil.Process(locked.pid).children(recursive=True)]
    assert all(AUTH not in " ".join(process.cmdline()) for process in family)
