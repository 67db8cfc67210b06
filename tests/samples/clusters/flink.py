"""A real Flink cluster for tests, started by python -m tests.samples.clusters.flink_here up."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.ports import open_url
from tests.samples.clusters.flink_here.cluster import CLUSTER_FILE, CONFIG_FILE
from tests.samples.clusters.flink_here.jars import find_java
from tests.samples.waiting import before_its_end, eventually

REPOSITORY = Path(__file__).parents[3]
JARS = Path(os.environ.get("SHARDMILL_FLINK_JARS", "~/.cache/shardmill/flink")).expanduser()
START_SECONDS = 900.0  # the jars may have to be downloaded


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs.

    Attributes:
        folder: of its files.
        process: the script that supervises it.
        task_managers: how many it has.
    """

    folder: Path
    process: subprocess.Popen[bytes]
    task_managers: int

    @property
    def config(self) -> Path:
        """File for --config that has prepare run on the cluster."""
        return self.folder / CONFIG_FILE

    @property
    def described(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads((self.folder / CLUSTER_FILE).read_text())
        return described

    def pid(self, service: str) -> int:
        """The present process of a service."""
        pid: int = self.described["pids"][service]
        return pid

    def kill(self, service: str) -> None:
        """Kill a service, and wait until another process does its work."""
        killed = self.pid(service)
        os.kill(killed, signal.SIGKILL)
        assert eventually(lambda: self.pid(service) != killed)

    def workers(self, number: int) -> list[psutil.Process]:
        """The Python workers of a TaskManager (from 1)."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.pid(f"workers-{number}")).children()
            return [child for child in children if "shardmill.beam_jobs.execution.workers" in child.cmdline()]
        return []

    def jobs(self) -> dict[str, str]:
        """Id -> state of every job that the JobManager knows."""
        return {job["jid"]: job["state"] for job in self._ask("/jobs/overview")["jobs"]}

    def num_running(self) -> int:
        """The number of jobs that have not ended."""
        return sum(state not in ("FINISHED", "FAILED", "CANCELED") for state in self.jobs().values())

    def slots_are_free(self) -> bool:
        """Whether the JobManager answers, and all TaskManagers are there and do nothing."""
        try:
            seen = self._ask("/overview")
        except OSError:  # it starts
            return False
        return bool(
            seen["taskmanagers"] == self.task_managers and seen["slots-available"] == seen["slots-total"]
        )

    def _ask(self, path: str) -> Any:
        request = urllib.request.Request(f"http://{self.described['flink_master']}{path}")
        with open_url(request, timeout_seconds=30) as answer:
            return json.load(answer)


def require_flink() -> None:
    """Skip the test if Flink cannot be started; the reason names the missing program."""
    try:
        find_java()
    except EnvironmentFault as fault:
        pytest.skip(f"{fault.message}: {fault.remedy}")
    if shutil.which("mvn") is None and not (JARS / "jobserver").is_dir():
        pytest.skip(f"no jars in {JARS}, and no mvn to download them: apt-get install maven")


@contextlib.contextmanager
def running_cluster(folder: Path, path: str = "", task_managers: int = 2, *options: str) -> Iterator[Cluster]:
    """A cluster on free ports; nothing of it is left at the end.

    Args:
        folder: for its files.
        path: more folders for PYTHONPATH of the workers.
        task_managers: how many.
        options: more words of the command.
    """
    require_flink()
    log = folder / "up.log"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{REPOSITORY}"}
    ports = [word for option in ("--rest-port", "--job-port", "--worker-port") for word in (option, "0")]
    arguments = ["--folder", str(folder), "--task-managers", str(task_managers), "--jars", str(JARS)]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.samples.clusters.flink_here", "up", *arguments, *ports, *options],
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            cwd=REPOSITORY,
        )
    cluster = Cluster(folder, process, task_managers)
    try:
        before_its_end(
            lambda: True if (folder / CLUSTER_FILE).exists() else None,
            lambda: process.poll() is not None,
            START_SECONDS,
        )
        yield cluster
    finally:
        tree = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=120)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(tree, timeout=60)
        print(log.read_text())
        assert not alive
