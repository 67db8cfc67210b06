"""Copy Prefect's database while its server runs, and put a copy back while it does not."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
from pathlib import Path

from shardmill.flows import home
from shardmill.flows.server.database import sqlite_path, without_password
from shardmill.infra.errors import CorruptDataError, EnvironmentFault, UsageError

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
    check_copy(folder / file)
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


def check_copy(copy: Path) -> None:
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


def _sqlite_path(url: str | None) -> Path:
    if url is None:
        return home.home() / "prefect" / "prefect.db"
    return sqlite_path(url)


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
