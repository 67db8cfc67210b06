"""A database that Prefect cannot use is refused in words, without its password."""

from __future__ import annotations

import pytest

from flows.server.database import check_database, without_password
from infra.errors import EnvironmentFault, UsageError


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
