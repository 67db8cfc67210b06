"""A database that Prefect cannot use is refused in words, without its password."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmill.flows.server.database import check_database, without_password
from shardmill.infra.errors import EnvironmentFault, UsageError


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("mysql://team:secret@host/name", UsageError, "Prefect uses PostgreSQL by asyncpg, or SQLite"),
        ("postgresql://team:secret@host/name", UsageError, "Prefect uses PostgreSQL by asyncpg, or SQLite"),
        ("postgresql+asyncpg://team:secret@host", UsageError, "names no database"),
        ("postgresql+asyncpg://team:secret@host:x/name", UsageError, "not the URL of a database"),
        ("postgresql+asyncpg://team:secret@[::/name", UsageError, "not the URL of a database"),
        ("nonsense", UsageError, "Prefect uses"),
        ("postgresql+asyncpg://team:secret@127.0.0.1:9/name?x=secret", EnvironmentFault, "cannot be used"),
    ],
)
def test_a_wrong_database_is_refused(url: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        check_database(url)
    assert "secret" not in str(caught.value)


def test_sqlite_and_none_are_well() -> None:
    check_database(None)
    check_database("sqlite+aiosqlite:////tmp/prefect.db")


def test_people_see_no_password() -> None:
    assert (
        without_password("postgresql+asyncpg://team:p@ss@host:5432/db")
        == "postgresql+asyncpg://team:***@host:5432/db"
    )
    assert without_password("postgresql+asyncpg://host/db?password=x") == "postgresql+asyncpg://host/db?***"


def _table(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE runs (name TEXT)")
        database.executemany("INSERT INTO runs VALUES (?)", [("x" * 500,)] * 200)
        database.commit()


def _overwrite(path: Path, begin: int) -> None:
    _table(path)
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(b"\xff" * 3000)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not a database at all" * 100),
        lambda path: _overwrite(path, 0),
        lambda path: _overwrite(path, 4096 * 3),
        lambda path: path.mkdir(),
    ],
    ids=["rubbish", "head", "page", "folder"],
)
@pytest.mark.parametrize("has_url", [False, True])
def test_a_damaged_history_is_named_with_the_command_that_restores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], has_url: bool
) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    path = tmp_path / "prefect" / "prefect.db"
    path.parent.mkdir()
    damage(path)
    with pytest.raises(EnvironmentFault, match=r"prefect\.db is (damaged|not a file)") as caught:
        check_database(f"sqlite+aiosqlite:///{path}" if has_url else None)
    assert "shardmill platform restore DIR --replace" in str(caught.value.remedy)


def test_a_locked_history_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    path = tmp_path / "prefect" / "prefect.db"
    path.parent.mkdir()
    _table(path)
    check_database(None)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EnvironmentFault, match=r"prefect\.db is locked by another process"):
            check_database(None)
    check_database(None)
