"""A Redis server of a test's own, from the system's package; a test without it skips, and says so."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from shardmill.infra.processes.ports import free_port
from tests.samples.waiting import eventually


@dataclass
class RedisServer:
    """A Redis server, by default with an append-only file.

    Attributes:
        folder: where it keeps its data.
        options: further words of its command line.
        password: of its clients; empty: they need none.
    """

    folder: Path
    options: tuple[str, ...] = ("--appendonly", "yes", "--appendfsync", "always")
    password: str = ""
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address, as `shardmill platform server --redis` takes it."""
        user = f"default:{self.password}@" if self.password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        secret = ["--requirepass", self.password] if self.password else []
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self.options, *secret],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert eventually(self._answers, every=0.1), (self.folder / "redis.log").read_text()

    def kill(self) -> None:
        """Kill it without a chance to write anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with Redis.from_url(self.url) as client:
                return bool(client.ping())
        except RedisError:
            return False


@contextlib.contextmanager
def running_redis(folder: Path, *options: str, password: str = "") -> Iterator[RedisServer]:
    """Run a Redis server until the block ends; ``options`` replace the default ones."""
    if shutil.which("redis-server") is None:
        pytest.skip("NO REDIS: install redis-server (Debian) to run Prefect's server in several processes")
    folder.mkdir(parents=True)
    server = RedisServer(folder, options or RedisServer.options, password)
    server.start()
    try:
        yield server
    finally:
        server.kill()
