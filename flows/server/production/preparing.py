"""Prepare a process of Prefect's server: its environment, its database and Redis."""

from __future__ import annotations

import asyncio
import os

from shardmill.flows.server.database import check_database, without_password
from shardmill.flows.server.production.redis_check import check_redis
from shardmill.flows.server.production.settings import Backends, migration_environment, server_environment
from shardmill.infra.errors import EnvironmentFault, UsageError


def prepare(backends: Backends, ui_url: str, auth: str | None) -> list[str]:
    """Set this process's environment for a server, and check PostgreSQL and Redis; return warnings.

    Call this before Prefect is imported, which then reads its settings.

    Args:
        backends: the database and Redis that the processes of the server share.
        ui_url: address at which people and workers reach the server.
        auth: its password as ``user:password``, or None.

    Raises:
        UsageError: several servers cannot share one of the URLs.
        EnvironmentFault: PostgreSQL or Redis cannot be used.
    """
    os.environ.update(server_environment(backends, ui_url, auth))
    _check_is_shared(backends.database)
    return check_redis(backends.redis)


def migrate(database: str) -> None:
    """Bring the tables of Prefect's database, and the types of blocks in it, to this release of Prefect.

    Raises:
        UsageError, EnvironmentFault: the database cannot be used, or the migration failed.
    """
    _check_is_shared(database)
    os.environ.update(migration_environment(database))
    try:
        asyncio.run(_start_once())
    except Exception as error:
        raise EnvironmentFault(
            f"{without_password(database)} could not be migrated: {type(error).__name__}: {error}",
            "check that the user may make tables, and that no newer Prefect uses this database",
        ) from error


async def _start_once() -> None:
    """Start a server that listens nowhere, and stop it: Prefect prepares the database when it starts."""
    from prefect.server.api.server import create_app

    app = create_app(final=True, webserver_only=True)
    async with app.router.lifespan_context(app):
        pass


def _check_is_shared(database: str) -> None:
    if not database.startswith("postgresql"):
        raise UsageError(
            f"--database {without_password(database)}: several servers need PostgreSQL",
            "for example postgresql+asyncpg://user:password@localhost:5432/prefect",
        )
    check_database(database)
