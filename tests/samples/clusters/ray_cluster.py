"""A Ray cluster of several machines on this one: each has an address, a folder and processes of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from shardmill.infra.processes.ports import free_port

# Of 127.0.0.1 Ray would take the address of the network.
_HEAD = "127.0.0.2"
_START_SECONDS = 300.0
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": f"{_START_SECONDS:.0f}"}
_MEMORY_BYTES = 80_000_000
_RAY = (sys.executable, "-m", "ray.scripts.scripts")


class RayCluster:
    """Machines with a CPU each; the first is the head. A context manager: nothing of it stays.

    Attributes:
        address: of the head.
        machines: the process ``ray start --block`` of each machine, by its address.
    """

    def __init__(self) -> None:
        """Make a cluster without machines."""
        self.address = f"{_HEAD}:{free_port(_HEAD)}"
        self.machines: dict[str, subprocess.Popen[bytes]] = {}
        # The path of Ray's sockets must be short.
        self._folder = tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in list(self.machines):
            self.kill(host)
        self._folder.cleanup()

    def add(self, num_cpus: int = 1) -> str:
        """Start a machine and wait until it belongs to the cluster; its address."""
        host = f"127.0.0.{2 + len(self._logs())}"
        where = ["--address", self.address]
        if not self._logs():
            where = ["--head", "--port", self.address.rpartition(":")[2], "--include-dashboard=false"]
            where += ["--ray-client-server-port", str(free_port(_HEAD))]
        log = Path(self._folder.name) / f"{host}.log"
        argv = [*_RAY, "start", *where, "--node-ip-address", host, "--block", "--disable-usage-stats"]
        argv += ["--temp-dir", str(Path(self._folder.name) / host[-1]), "--num-cpus", str(num_cpus)]
        argv += ["--num-gpus", "0", "--object-store-memory", str(_MEMORY_BYTES)]
        with log.open("wb") as out:
            self.machines[host] = subprocess.Popen(
                argv,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **_ENVIRONMENT},
            )
        until = time.monotonic() + _START_SECONDS
        while "Ray runtime started" not in log.read_text():
            assert self.machines[host].poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        return host

    def kill(self, host: str) -> None:
        """Kill all processes of a machine at once, as a power cut does."""
        process = self.machines.pop(host)
        processes = [one for one in psutil.process_iter() if self._is_of(one, host)]
        with contextlib.suppress(psutil.NoSuchProcess):
            processes += psutil.Process(process.pid).children(recursive=True)
        for one in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.kill()
        process.wait()

    def _is_of(self, process: psutil.Process, host: str) -> bool:
        with contextlib.suppress(psutil.Error):
            return any(str(Path(self._folder.name) / host[-1]) in word for word in process.cmdline())
        return False

    def _logs(self) -> list[Path]:
        return sorted(Path(self._folder.name).glob("*.log"))
