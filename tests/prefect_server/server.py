"""A real `shardmill up` for tests (it takes 10 s to start), on a free port, with a home of its own.

The folders tests/prefect_server and tests/browser have a fixture ``shardmill_up``: the tests of a folder
share a server, which is stopped after the last of them, since an idle one takes a tenth of a core. With
several processes of tests, tests/conftest.py keeps them in one. Everything goes through the commands
and the HTTP API of users::

    def test_something(shardmill_up: RunningServer) -> None:
        run = shardmill_up.deployment_run("prepare/prepare", source=str(folder), dataset="photos")
        assert shardmill_up.wait(run)["state_type"] == "COMPLETED"
        shardmill_up.artifacts(run)                 # [{"key": ..., "type": ..., "data": ...}, ...]
        shardmill_up.page(run)                      # address of the run's page
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from shardmill.infra.processes.trees import lives
from tests.samples.waiting import eventually

FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

_RUN_SECONDS = 900.0
GONE_SECONDS = 10.0  # all processes of a platform are gone so soon after it was killed

# Stops it when its own input ends: when the session closes it, or is killed, be it while it still starts.
_STOP_AT_END = """
import os, subprocess, sys, time
if sys.stdin.read() == "ended":
    sys.exit(0)
os.environ["SHARDMILL_HOME"] = sys.argv[1]  # not before: this process is none of the platform
for _ in range(20):
    down = subprocess.run(
        [sys.executable, "-m", "shardmill.flows.cli", "down"], capture_output=True, text=True
    )
    if "Stopped" in down.stdout:
        sys.exit(0)
    time.sleep(1)
sys.exit(f"shardmill down: {down.stdout}{down.stderr}")
"""


@dataclass(frozen=True)
class RunningServer:
    """A running `shardmill up`.

    Attributes:
        ui_url: of the web interface.
        api_url: of Prefect's API.
        page_url: of the platform's own page.
        pid: of `shardmill up` itself.
        root: folder of the worker's datasets.
        runs: folder of the worker's training runs.
        env: environment for commands that shall talk to this server.
    """

    ui_url: str
    api_url: str
    page_url: str
    pid: int
    root: Path
    runs: Path
    env: Mapping[str, str]

    def shardmill(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a `shardmill` command against this server."""
        return run_command([sys.executable, "-m", "shardmill.flows.cli", *arguments], self.env, timeout)

    def prefect(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a `prefect` command against this server."""
        env = {**self.env, "PREFECT_API_URL": self.api_url}
        return run_command([sys.executable, "-m", "prefect", *arguments], env, timeout)

    def deployment_run(self, deployment: str, **parameters: Any) -> str:
        """Start a deployment as the form of the web interface does; the id of the flow run."""
        found = self.get(f"/deployments/name/{deployment}")
        run = self.post(
            f"/deployments/{found['id']}/create_flow_run",
            parameters=parameters,
            state={"type": "SCHEDULED"},
        )
        return str(run["id"])

    def wait(self, run_id: str, *states: str, timeout: float = _RUN_SECONDS) -> dict[str, Any]:
        """The flow run, once it is in one of ``states`` (by default: any final one)."""
        deadline = time.monotonic() + timeout
        while True:
            run: dict[str, Any] = self.get(f"/flow_runs/{run_id}")
            if run["state_type"] in (states or FINAL):
                return run
            assert run["state_type"] not in FINAL, f"{run['state_type']}: {run['state'].get('message')}"
            assert time.monotonic() < deadline, (
                f"still {run['state_type']} after {timeout} s: {self.logs(run_id)}"
            )
            time.sleep(0.5)

    def has_ended(self, run_id: str) -> bool:
        """Tell whether the flow run is in a final state."""
        return self.get(f"/flow_runs/{run_id}")["state_type"] in FINAL

    def run_named(self, name: str) -> dict[str, Any]:
        """The flow run of this name."""
        (run,) = self.post("/flow_runs/filter", flow_runs={"name": {"any_": [name]}})
        found: dict[str, Any] = run
        return found

    def comes_true(self, holds: Callable[[], bool], seconds: float = 120.0) -> bool:
        """Wait until the server says something, without asking it all the time; whether it did."""
        return eventually(holds, seconds, every=0.5)

    def find_run(self, name: str, state: str) -> dict[str, Any] | None:
        """The flow run of this name, if it is in this state."""
        time.sleep(0.3)  # callers ask in a loop
        runs = self.post("/flow_runs/filter", flow_runs={"name": {"any_": [name]}})
        return next((run for run in runs if run["state_type"] == state), None)

    def state_of(self, name: str) -> str:
        """The type of the state of the flow run of this name."""
        return str(self.run_named(name)["state_type"])

    def artifacts(self, run_id: str) -> list[dict[str, Any]]:
        """The artifacts of a flow run and of its subflows' runs, oldest first."""
        runs = [run_id]
        children = self.post(
            "/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run_id]}}, limit=50
        )
        return self.artifacts_of(*runs, *(child["id"] for child in children))

    def artifacts_of(self, *run_ids: str) -> list[dict[str, Any]]:
        """The artifacts of these flow runs themselves, oldest first."""
        wanted = {"flow_run_id": {"any_": list(run_ids)}}
        found: list[dict[str, Any]] = self.post(
            "/artifacts/filter", artifacts=wanted, sort="CREATED_DESC", limit=100
        )
        return [artifact for artifact in reversed(found) if artifact["key"]]

    def logs(self, run_id: str) -> list[str]:
        """The log of the run."""
        found = self.post(
            "/logs/filter", logs={"flow_run_id": {"any_": [run_id]}}, sort="TIMESTAMP_ASC", limit=200
        )
        return [entry["message"] for entry in found]

    def logged(self, run_id: str, words: str, timeout: float = 30.0) -> bool:
        """Whether the run logged a line with these words: its process sends them a while after it logs."""
        deadline = time.monotonic() + timeout
        while not (found := any(words in line for line in self.logs(run_id))) and time.monotonic() < deadline:
            time.sleep(0.3)
        return found

    def page(self, run_id: str, tab: str = "Artifacts") -> str:
        """Address of a run's page."""
        return f"{self.ui_url}/runs/flow-run/{run_id}?tab={tab}"

    def get(self, path: str) -> Any:
        """GET of the API."""
        return _request(self.api_url + path, None)

    def post(self, path: str, **body: Any) -> Any:
        """POST to the API."""
        return _request(self.api_url + path, body, self._csrf())

    def delete(self, path: str) -> None:
        """DELETE of the API."""
        _request(self.api_url + path, None, self._csrf(), method="DELETE")

    def _csrf(self) -> dict[str, str]:
        client = str(uuid.uuid4())
        token = self.get(f"/csrf-token?client={client}")["token"]
        return {"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token}


def processes_of(home: Path) -> list[psutil.Process]:
    """The processes that run with this SHARDMILL_HOME, but not this one and those above it."""
    own = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in own and process.environ().get("SHARDMILL_HOME") == str(home):
                found.append(process)
    return [process for process in found if lives(process)]


def remaining(home: Path, seconds: float = GONE_SECONDS) -> list[str]:
    """The processes that still run with this SHARDMILL_HOME after so long, each by its command line."""
    eventually(lambda: not processes_of(home), seconds, every=0.2)
    left = []
    for process in processes_of(home):
        with contextlib.suppress(psutil.NoSuchProcess):
            left.append(" ".join(process.cmdline()))
    return left


def run_command(
    command: list[str], env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and keep what it said."""
    return subprocess.run(
        command, env=dict(env), capture_output=True, text=True, timeout=timeout, check=False
    )


def _request(
    url: str, body: Mapping[str, Any] | None, csrf: Mapping[str, str] | None = None, method: str | None = None
) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **(csrf or {})}
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 60
    while True:
        try:
            with opener.open(request, timeout=120) as response:
                text = response.read()
            return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            # The database was locked; Prefect's own clients try again too.
            if error.code != 503 or time.monotonic() > deadline:
                raise
            error.close()
            time.sleep(1)


def user_environment(home: Path) -> dict[str, str]:
    """The environment of a user who has set nothing but the home of Shardmill."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "SHARDMILL"))
    }
    return inherited | {"SHARDMILL_HOME": str(home)}


@contextlib.contextmanager
def started_up(folder: Path, *options: str) -> Iterator[RunningServer]:
    """`shardmill up` with a home of its own in ``folder``; stopped, with all that hangs on it, at the end.

    The block may end it by itself.
    """
    root, runs, home = folder / "datasets", folder / "runs", folder / "home"
    env = user_environment(home)
    command = [sys.executable, "-m", "shardmill.flows.cli", "up", "--detach", "--port", "0", "--json"]
    command += ["--root", str(root), "--runs", str(runs), *options]
    # In a session of its own, so that what ends this process's group does not end the stopper too.
    stopper = subprocess.Popen(
        [sys.executable, "-c", _STOP_AT_END, str(home)],
        stdin=subprocess.PIPE,
        env={name: value for name, value in env.items() if name != "SHARDMILL_HOME"},
        start_new_session=True,
        text=True,
    )
    up = None
    try:
        done = run_command(command, env, timeout=900)
        assert done.returncode == 0, done.stderr
        where = json.loads(done.stdout.splitlines()[-1])
        up = psutil.Process(where["pid"])
        yield RunningServer(
            where["ui_url"], where["api_url"], where["page_url"], where["pid"], root, runs, env
        )
    finally:
        has_ended = up is not None and not lives(up)
        stopper.communicate("ended" if has_ended else "", timeout=240)
    assert stopper.returncode == 0
    assert remaining(home) == []
