"""Check the database of Prefect's server before the server is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil

from shardmill.flows import home
from shardmill.infra.errors import EnvironmentFault, UsageError

DATABASE_SETTING = "PREFECT_SERVER_DATABASE_CONNECTION_URL"

RESTORE = (
    "restore a backup: shardmill platform restore DIR --replace. Without one, move the file away: the "
    "history of runs and the schedules begin anew, datasets and models stay"
)

_EXAMPLE = "for example postgresql+asyncpg://user:password@localhost:5432/prefect"
_POSTGRESQL = "postgresql+asyncpg"
_OLDEST = 14  # the oldest release of PostgreSQL that Prefect supports
_CONNECT_SECONDS = 10.0
_LOCK_SECONDS = 3.0
_CHECK_SECONDS = 5.0


def check_database(url: str | None) -> None:
    """Raise an error when Prefect's server could not use the database at ``url``; None means SQLite.

    Raises:
        UsageError: the URL is malformed, or names a kind of database that Prefect does not use.
        EnvironmentFault: the database does not answer, refuses the connection, or is too old.
    """
    if url is None:
        check_sqlite(home.home() / "prefect" / "prefect.db")
        return
    shown = without_password(url)
    try:
        parts = urlsplit(url)
        scheme, name = parts.scheme, parts.path.strip("/")
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"--database {shown}: not the URL of a database ({error})", _EXAMPLE) from error
    if scheme == "sqlite+aiosqlite":
        check_sqlite(sqlite_path(url))
        return
    if scheme != _POSTGRESQL:
        raise UsageError(f"--database {shown}: Prefect uses PostgreSQL by asyncpg, or SQLite", _EXAMPLE)
    if not name:
        raise UsageError(f"--database {shown}: the URL names no database", _EXAMPLE)
    release = asyncio.run(_release_of(url.replace(_POSTGRESQL, "postgresql", 1), shown))
    if release < _OLDEST:
        raise EnvironmentFault(
            f"--database {shown} is PostgreSQL {release}; Prefect needs {_OLDEST} or newer", "use a newer one"
        )


def sqlite_path(url: str) -> Path:
    """Return the file of a SQLite database that a URL names."""
    return Path("/" + url.partition(":///")[2].partition("?")[0].lstrip("/"))


def check_sqlite(path: Path) -> None:
    """Check that a SQLite database, if it is there, can be read and written to.

    Raises:
        EnvironmentFault: it cannot be opened, is damaged, or another process holds its lock.
    """
    if not path.exists():
        return
    if not path.is_file():
        raise EnvironmentFault(f"Prefect's database {path} is not a file", RESTORE)
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_LOCK_SECONDS)) as database:
            end = time.monotonic() + _CHECK_SECONDS
            database.set_progress_handler(lambda: time.monotonic() > end, 100_000)
            with contextlib.suppress(sqlite3.OperationalError):  # too large to read within the time
                if (found := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                    raise EnvironmentFault(f"Prefect's database {path} is damaged: {found}", RESTORE)
            database.set_progress_handler(None, 0)
            database.execute("BEGIN IMMEDIATE")
            database.rollback()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise EnvironmentFault(f"Prefect's database {path} cannot be used: {error}", RESTORE) from error
        holders = ", ".join(_users_of(path)) or "a process that this user cannot see"
        raise EnvironmentFault(
            f"Prefect's database {path} is locked by another process: {holders}", "end it, then try again"
        ) from error
    except sqlite3.DatabaseError as error:
        raise EnvironmentFault(f"Prefect's database {path} is damaged: {error}", RESTORE) from error


def _users_of(path: Path) -> list[str]:
    """Return the other processes that have a file open."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and str(path) in {file.path for file in process.open_files()}:
                found.append(f"{process.name()} (process {process.pid})")
    return found


async def _release_of(url: str, shown: str) -> int:
    """Return the major release of PostgreSQL at ``url``."""
    import asyncpg

    try:
        connection = await asyncpg.connect(url, timeout=_CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise EnvironmentFault(
            f"--database {shown} cannot be used: {str(error) or type(error).__name__}",
            "start PostgreSQL, and check host, port, user, password and the name of the database",
        ) from error
    try:
        return int(connection.get_server_version().major)
    finally:
        await connection.close()


def without_password(url: str) -> str:
    """Return a URL to show to people, with stars in place of its password and options."""
    try:
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        user = f"{user.partition(':')[0]}:***" if ":" in user else user
        return urlunsplit((parts.scheme, f"{user}{at}{host}", parts.path, "***" if parts.query else "", ""))
    except ValueError:
        return "***"
