"""Check the database of Prefect's server before the server is started."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit, urlunsplit

from infra.errors import EnvironmentFault, UsageError

DATABASE_SETTING = "PREFECT_SERVER_DATABASE_CONNECTION_URL"

_EXAMPLE = "for example postgresql+asyncpg://user:password@localhost:5432/prefect"
_POSTGRESQL = "postgresql+asyncpg"
_OLDEST = 14  # the oldest release of PostgreSQL that Prefect supports
_CONNECT_SECONDS = 10.0


def check_database(url: str | None) -> None:
    """Raise an error when Prefect's server could not use the database at ``url``; None means SQLite.

    Raises:
        UsageError: the URL is malformed, or names a kind of database that Prefect does not use.
        EnvironmentFault: the database does not answer, refuses the connection, or is too old.
    """
    if url is None:
        return
    shown = without_password(url)
    try:
        parts = urlsplit(url)
        scheme, name = parts.scheme, parts.path.strip("/")
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"--database {shown}: not the URL of a database ({error})", _EXAMPLE) from error
    if scheme == "sqlite+aiosqlite":
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
