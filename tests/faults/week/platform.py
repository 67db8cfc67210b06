"""A platform that is restarted after each kill of its `shardmill up`, and the commands that users run."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from shardmill.infra.processes.ports import free_port
from shardmill.infra.processes.trees import lives
from tests.faults.week.victims import kind_of
from tests.prefect_server.server import (
    RunningServer,
    processes_of,
    remaining,
    run_command,
    user_environment,
)

_UNDER_WAY = ("RUNNING", "PENDING", "CANCELLING", "SCHEDULED", "PAUSED")
_PAGE = 200
_AFTER_A_KILL_SECONDS = 300.0


class Platform:
    """`shardmill up` on ports of its own, with the history of all its starts."""

    def __init__(self, folder: Path, database_url: str | None = None) -> None:
        self.home, self.root, self.runs = folder / "home", folder / "datasets", folder / "runs"
        self.env = user_environment(self.home)
        self._up = ["up", "--detach", "--json", "--port", str(free_port()), "--root", str(self.root)]
        self._up += ["--runs", str(self.runs), "--no-tensorboard"]
        self._up += ["--database", database_url] if database_url else []
        self._server: RunningServer | None = None

    def start(self) -> None:
        """Start it, also after it was killed."""
        done = self.shardmill(*self._up)
        assert done.returncode == 0, done.stderr
        where = json.loads(done.stdout.splitlines()[-1])
        self._server = RunningServer(
            where["ui_url"],
            where["api_url"],
            where["page_url"],
            where["pid"],
            self.root,
            self.runs,
            self.env,
        )

    @property
    def server(self) -> RunningServer:
        """The server of the platform, which was started."""
        assert self._server is not None
        return self._server

    def is_up(self) -> bool:
        """Tell whether `shardmill up` runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return self._server is not None and lives(psutil.Process(self._server.pid))
        return False

    def stop(self) -> None:
        """Stop it."""
        self.shardmill("down")

    def remaining(self, seconds: float) -> list[str]:
        """Command lines of the processes that are left after so long."""
        return remaining(self.home, seconds)

    def kill(self) -> None:
        """Kill its remaining processes."""
        for process in processes_of(self.home):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def shardmill(self, *arguments: str) -> Any:
        """Run a command of `shardmill`."""
        return run_command([sys.executable, "-m", "shardmill.flows.cli", *arguments], self.env, 600)

    def patiently(self, *arguments: str) -> None:
        """Run a command until it succeeds: the server may be on its way up again."""
        done = self.shardmill(*arguments)
        end = time.monotonic() + _AFTER_A_KILL_SECONDS
        while done.returncode != 0 and time.monotonic() < end:
            time.sleep(2)
            done = self.shardmill(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def under_way(self) -> list[str]:
        """Runs that have not ended, also those that wait, and tasks; one line if nothing answers."""
        state = {"state": {"type": {"any_": list(_UNDER_WAY)}}}
        try:
            runs = self._all("flow_runs", flow_runs=state)
            tasks = self._all("task_runs", task_runs=state)
        except OSError:  # also URLError
            return ["the server does not answer"]
        now = datetime.now(UTC).isoformat()
        waiting = [run for run in runs if (run["next_scheduled_start_time"] or "") <= now or _has_begun(run)]
        return [f"{found['name']}: {found['state_name']}" for found in [*waiting, *tasks]]

    def comes_to_rest(self, seconds: float) -> list[str]:
        """Wait until nothing is under way or waits; return what still does."""
        return eventually_empty(self.under_way, seconds)

    def taken_slots(self) -> list[str]:
        """The concurrency limits with slots that are taken."""
        limits = self.server.post("/v2/concurrency_limits/filter", limit=_PAGE)
        return [f"{limit['name']}: {limit['active_slots']}" for limit in limits if limit["active_slots"]]

    def orphans(self) -> list[str]:
        """Processes of this home that `shardmill up` did not start, and those that work without a run."""
        family = {process.pid for process in psutil.Process(self.server.pid).children(recursive=True)}
        found = []
        for process in processes_of(self.home):
            with contextlib.suppress(psutil.NoSuchProcess):
                is_service = kind_of(process) in (None, "worker", "server", "up")
                if process.pid not in {*family, self.server.pid} or not is_service:
                    found.append(" ".join(process.cmdline()))
        return found

    def all_runs(self) -> list[dict[str, Any]]:
        """All flow runs of the history."""
        return self._all("flow_runs")

    def _all(self, what: str, **filters: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = self.server.post(f"/{what}/filter", limit=_PAGE, offset=len(found), **filters)
            found += page
            if len(page) < _PAGE:
                return found


def eventually_empty(ask: Callable[[], list[str]], seconds: float) -> list[str]:
    """Ask until the answer is empty or the time is over; return the last answer."""
    end = time.monotonic() + seconds
    while (left := ask()) and time.monotonic() < end:
        time.sleep(2)
    return left


def _has_begun(run: dict[str, Any]) -> bool:
    return str(run["state_name"]) not in ("Scheduled", "Late")
