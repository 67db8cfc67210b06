"""PostgreSQL as the platform's database, killed and started again as a system's service manager does it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from shardmill.infra.processes.trees import lives
from tests.prefect_server.postgresql import PostgreSql, running_postgresql

_START_SECONDS = 60.0


class KillableDatabase:
    """A PostgreSQL server that may be killed."""

    def __init__(self, server: PostgreSql) -> None:
        self.url = server.url
        self._server = server

    def process(self) -> psutil.Process | None:
        """Its first process; None while it does not run."""
        try:
            found = psutil.Process(self._server.process_id())
        except (OSError, psutil.NoSuchProcess):
            return None
        return found if lives(found) else None

    def start_again(self) -> None:
        """Start it after a kill: its other processes need a moment to notice that."""
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._server.control("start")
                return
            except AssertionError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.5)


@contextmanager
def maybe_database() -> Iterator[KillableDatabase | None]:
    """A PostgreSQL server that can be killed; None if PostgreSQL is not installed: then SQLite is used."""
    try:
        with running_postgresql() as server:
            yield KillableDatabase(server)
    except pytest.skip.Exception as missing:
        print(missing)
        yield None
