"""Prefect's server in production, on this machine: PostgreSQL, Redis, two API servers, services, workers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shardmill.flows.flow_runs import api_requests
from shardmill.infra.processes.ports import free_ports
from tests.prefect_server.postgresql import PostgreSql, running_postgresql
from tests.prefect_server.redis_server import RedisServer, running_redis
from tests.prefect_server.server import RunningServer, run_command, user_environment
from tests.samples.clusters.load_balancer import balancing
from tests.samples.waiting import before_its_end

_START_SECONDS = 300.0


@dataclass
class Process:
    """A process of the set, which a test may kill and start again.

    Attributes:
        command: words of a command of this environment's Python.
        env: its environment.
        log: file that it writes to.
    """

    command: list[str]
    env: dict[str, str]
    log: Path
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a process group of its own."""
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", *self.command],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to its whole group and wait for its end; a group that does not end is killed."""
        if self.popen is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, number)
            try:
                self.popen.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait()

    @property
    def lives(self) -> bool:
        """Whether it runs."""
        return self.popen is not None and self.popen.poll() is None


@dataclass
class Production:
    """The set, once it is healthy.

    Attributes:
        server: commands and the API of it, through the load balancer.
        apis: two API servers, by port.
        services: the process of the services.
        workers: a worker for each pool, by the pool's name.
    """

    server: RunningServer
    postgresql: PostgreSql
    redis: RedisServer
    apis: dict[int, Process]
    services: Process
    workers: dict[str, Process] = field(default_factory=dict)

    def healthy(self, port: int) -> bool:
        """Tell whether the API server of a port answers."""
        return api_requests.answers(f"http://127.0.0.1:{port}/api")


@contextlib.contextmanager
def production(folder: Path) -> Iterator[Production]:
    """Run PostgreSQL, Redis, two API servers behind a load balancer, the services and two workers."""
    if importlib.util.find_spec("prefect_redis") is None:
        pytest.skip("NO PREFECT-REDIS: pip install prefect-redis (the extra `redis`)")
    with contextlib.ExitStack() as stack:
        postgresql = stack.enter_context(running_postgresql())
        redis = stack.enter_context(running_redis(folder / "redis"))
        ports = free_ports(2)
        balanced = stack.enter_context(balancing(ports))
        url = f"http://127.0.0.1:{balanced}"
        env = user_environment(folder / "home") | {
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": postgresql.url,
            "PREFECT_REDIS_MESSAGING_URL": redis.url,
        }
        shardmill = ["shardmill.flows.cli", "platform", "server"]
        migrated = run_command([sys.executable, "-m", *shardmill, "migrate"], env, _START_SECONDS)
        assert migrated.returncode == 0, migrated.stderr
        apis = {
            port: Process(
                [*shardmill, "api", "--port", str(port), "--url", url], env, folder / f"api-{number}.log"
            )
            for number, port in enumerate(ports)
        }
        background = Process([*shardmill, "services", "--url", url], env, folder / "services.log")
        for process in (*apis.values(), background):
            stack.callback(process.kill)
            process.start()
        root, runs = folder / "datasets", folder / "runs"
        client_env = user_environment(folder / "home") | {"PREFECT_API_URL": f"{url}/api"}
        server = RunningServer(url, f"{url}/api", "", 0, root, runs, client_env)
        found = Production(server, postgresql, redis, apis, background)
        for port, process in apis.items():
            before_its_end(
                lambda port=port: found.healthy(port) or None, lambda process=process: not process.lives
            )
        yield found


@contextlib.contextmanager
def working(found: Production, folder: Path, *pools: str) -> Iterator[None]:
    """Run a worker for each pool until the block ends, each with a home as on a machine of its own."""
    places = {"SHARDMILL_ROOT": str(found.server.root), "SHARDMILL_RUNS": str(found.server.runs)}
    with contextlib.ExitStack() as stack:
        for pool in pools:
            home = {"SHARDMILL_HOME": str(folder / f"home-{pool}"), "PREFECT_WORKER_QUERY_SECONDS": "3"}
            worker = Process(
                ["prefect", "worker", "start", "--pool", pool, "--type", "process"],
                {**found.server.env, **places, **home},
                folder / f"worker-{pool}.log",
            )
            found.workers[pool] = worker
            stack.callback(worker.kill, signal.SIGTERM)
            worker.start()
        yield
