"""A PostgreSQL server of a test's own, from the system's package; a test without it skips, and says so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

_USER = "postgres"  # the server refuses to run as root


@dataclass(frozen=True)
class PostgreSql:
    """A running server with one database.

    Attributes:
        url: as `shardmill up --database` takes it.
    """

    url: str
    _programs: Path
    _data: Path

    def process_id(self) -> int:
        """Process id of the server, which ends all others of it when it is gone."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def control(self, action: str, *more: str) -> None:
        """Start, stop or restart it, by ``pg_ctl``."""
        log = self._data.parent / "postgresql.log"
        command = [
            str(self._programs / "pg_ctl"),
            action,
            "--wait",
            "-D",
            str(self._data),
            "-l",
            str(log),
            *more,
        ]
        _as_its_user(command, self._data.parent)


@contextlib.contextmanager
def running_postgresql() -> Iterator[PostgreSql]:
    """Start a server with a folder of its own, and stop it when the block ends."""
    programs = _programs()
    # Not in pytest's folders, which are closed to other users.
    with tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True) as folder:
        if os.getuid() == 0:
            shutil.chown(folder, _USER)
        yield from _started(programs, Path(folder) / "data")


def in_postgresql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in a database; return the rows of the last one."""

    async def rows() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(url.replace("postgresql+asyncpg", "postgresql", 1))
        try:
            found = [await connection.fetch(statement) for statement in statements]
        finally:
            await connection.close()
        return [tuple(row) for row in found[-1]]

    return asyncio.run(rows())


def _started(programs: Path, data: Path) -> Iterator[PostgreSql]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    _as_its_user(
        [str(programs / "initdb"), "-D", str(data), "-U", "prefect", "--auth=trust", "--no-sync"], data.parent
    )
    with (data / "postgresql.conf").open("a") as settings:
        settings.write(
            f"port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\n"
        )
    server = PostgreSql(f"postgresql+asyncpg://prefect@127.0.0.1:{port}/postgres", programs, data)
    server.control("start")
    try:
        yield server
    finally:
        server.control("stop", "--mode=immediate")


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    if not found:
        pytest.skip("NO POSTGRESQL: install postgresql (Debian) to run the tests of --database")
    return found[-1].parent


def _as_its_user(command: list[str], folder: Path) -> None:
    if os.getuid() == 0:
        try:
            pwd.getpwnam(_USER)
        except KeyError:
            pytest.skip(f"NO USER {_USER}: install postgresql (Debian) to run the tests of --database")
        user: str | None = _USER
    else:
        user = None
    done = subprocess.run(
        command, user=user, cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        extra_groups=[] if user else None,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
