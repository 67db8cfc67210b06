"""Check the database of Prefect's server before the server starts; copy it, and put a copy back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil

from shardmill.flows import home
from shardmill.infra.errors import CorruptDataError, EnvironmentFault, UsageError

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
        _check_sqlite(_sqlite_path(None))
        return
    shown = without_password(url)
    try:
        parts = urlsplit(url)
        scheme, name = parts.scheme, parts.path.strip("/")
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"--database {shown}: not the URL of a database ({error})", _EXAMPLE) from error
    if scheme == "sqlite+aiosqlite":
        _check_sqlite(_sqlite_path(url))
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


def _sqlite_path(url: str | None) -> Path:
    """Return the file of the SQLite database that a URL names; None: that of SHARDMILL_HOME."""
    if url is None:
        return home.home() / "prefect" / "prefect.db"
    return Path("/" + url.partition(":///")[2].partition("?")[0].lstrip("/"))


def _check_sqlite(path: Path) -> None:
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


SQLITE_FILE, POSTGRESQL_FILE = "prefect.db", "prefect.dump"

_BESIDE = ("", "-wal", "-shm")  # files of one SQLite database


def back_up_database(folder: Path, url: str | None) -> str | None:
    """Copy the database into a folder.

    Args:
        folder: where the copy goes.
        url: of a PostgreSQL database; None: the SQLite database of SHARDMILL_HOME.

    Returns:
        The name of the file; None if there is no database yet.

    Raises:
        EnvironmentFault: `pg_dump` is missing or failed.
    """
    if url is not None and not url.startswith("sqlite"):
        _run(["pg_dump", "--format=custom", f"--file={folder / POSTGRESQL_FILE}", _plain(url)], url)
        return POSTGRESQL_FILE
    source = _sqlite_path(url)
    if not source.exists():
        return None
    with (
        contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as live,
        contextlib.closing(sqlite3.connect(folder / SQLITE_FILE)) as copy,
    ):
        live.backup(copy)  # SQLite's own online backup: also of a database that is written meanwhile
        copy.execute("PRAGMA journal_mode = DELETE")
    return SQLITE_FILE


def restore_database(folder: Path, file: str, url: str | None, *, replace: bool) -> None:
    """Put a copy of the database back. No server may run.

    Raises:
        UsageError: there is a database already, and ``replace`` is false; or it is of another kind.
        CorruptDataError: the copy is damaged. EnvironmentFault: `pg_restore` is missing or failed.
    """
    if file == POSTGRESQL_FILE:
        if url is None or url.startswith("sqlite"):
            raise UsageError(
                "the backup is of PostgreSQL", "name the database: --database postgresql+asyncpg://…"
            )
        given = ["--clean", "--if-exists"] if replace else []
        # In one transaction, so that a failed restore changes nothing.
        command = ["pg_restore", "--single-transaction", "--no-owner", *given, f"--dbname={_plain(url)}"]
        _run([*command, str(folder / file)], url)
        return
    if url is not None and not url.startswith("sqlite"):
        raise UsageError("the backup is of SQLite", "leave --database out")
    _check_copy(folder / file)
    target = _sqlite_path(url)
    if target.exists() and not replace:
        raise UsageError(
            f"{target} has a history already", "--replace keeps it as prefect.db.before-restore and goes on"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    for ending in _BESIDE:
        beside = target.with_name(target.name + ending)
        if beside.exists():
            beside.replace(target.with_name(f"{target.name}.before-restore{ending}"))
    partial = target.with_name(f"{target.name}.partial")
    shutil.copyfile(folder / file, partial)
    partial.replace(target)


def _check_copy(copy: Path) -> None:
    """Check that a copy of SQLite's database is whole.

    Raises:
        CorruptDataError: it is damaged.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as database:
            found = database.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise CorruptDataError(f"{copy} is damaged: {found}", "restore an earlier backup")


def _plain(url: str) -> str:
    """The URL as PostgreSQL's own programs take it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}://{rest}"


def _run(command: list[str], url: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise EnvironmentFault(
            f"{command[0]} is not installed, and {without_password(url)} is a PostgreSQL database",
            "install the client programs of PostgreSQL, of the server's release or newer",
        ) from error
    if done.returncode != 0:
        why = done.stderr.strip().replace(_plain(url), without_password(url))
        raise EnvironmentFault(f"{command[0]} failed: {why}", "check the database and the free space")
