"""Prefect's server in several processes: settings, checks of database and Redis, deployments on pools."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from shardmill.flows import home
from shardmill.flows.server import services
from shardmill.flows.server.database import DATABASE_SETTING, check_database, without_password
from shardmill.flows.server.deployments import Deploying, make_pool, prefect_file
from shardmill.infra.errors import EnvironmentFault, UsageError
from shardmill.infra.extras import lacking

if TYPE_CHECKING:
    from redis import Redis

REDIS_SETTING = "PREFECT_REDIS_MESSAGING_URL"


@dataclass(frozen=True, slots=True)
class Backends:
    """The settings that all processes of one server share.

    Attributes:
        database: URL of PostgreSQL, as Prefect takes it.
        redis: URL of Redis; ``redis``, ``rediss``, ``redis+sentinel`` or ``rediss+sentinel``.
    """

    database: str
    redis: str


def server_environment(backends: Backends, ui_url: str, auth: str | None = None) -> dict[str, str]:
    """Return Prefect's settings for each process of the server, as environment variables.

    Args:
        backends: the database and Redis that the processes share.
        ui_url: address at which people and workers reach the server.
        auth: its password as ``user:password``, or None.
    """
    return {
        **home.prefect_environment(),
        **services.server_settings(ui_url),
        "PREFECT_UI_URL": ui_url,
        # The page that the server hands out asks for its data wherever the page itself came from.
        "PREFECT_SERVER_UI_API_URL": "/api",
        **(services.password_settings(auth) if auth else {}),
        **_database_environment(backends.database, migrates=False),
        **_redis_environment(backends.redis),
    }


def migration_environment(database: str) -> dict[str, str]:
    """Return Prefect's settings for the process that prepares the database before servers use it."""
    return {
        **home.prefect_environment(),
        **_database_environment(database, migrates=True),
        # What this home remembers of another database says nothing of this one.
        "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
        # These services of an API server do not stop when they are stopped at once.
        "PREFECT_SERVER_EVENTS_STREAM_OUT_ENABLED": "false",
        "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "false",
    }


def _database_environment(database: str, *, migrates: bool) -> dict[str, str]:
    """Return the settings of the database.

    Args:
        database: its URL.
        migrates: whether the process makes tables and types of blocks when it starts. Of two servers that do
            so at the same time on a new database, one fails.
    """
    return {
        DATABASE_SETTING: database,
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": str(migrates).lower(),
        "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": str(migrates).lower(),
    }


def _redis_environment(url: str) -> dict[str, str]:
    """Return the settings that make Prefect's server keep its shared state in Redis."""
    return {
        REDIS_SETTING: url,
        "PREFECT_SERVER_EVENTS_MESSAGING_BROKER": "prefect_redis.messaging",
        "PREFECT_SERVER_EVENTS_MESSAGING_CACHE": "prefect_redis.messaging",
        "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "prefect_redis.ordering",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect_redis.lease_storage",
        "PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_QUEUE_STORAGE": "prefect_redis.cleanup_queue",
        "PREFECT_REDIS_WORKER_CLEANUP_QUEUE_URL": url,
        "PREFECT_SERVER_DOCKET_URL": url,
    }


_EXAMPLE = "for example redis://localhost:6379/0"
_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")
_OLDEST = (6, 2)  # Prefect's queue of services claims messages by XAUTOCLAIM
_CONNECT_SECONDS = 10.0


def check_redis(url: str) -> list[str]:
    """Check that Prefect's servers can use the Redis at ``url``; return warnings about its settings.

    Raises:
        UsageError: the URL is not one of Redis.
        EnvironmentFault: Redis does not answer, refuses or is too old; or ``prefect-redis`` is not installed.
    """
    shown = without_password(url)
    if url.partition("://")[0] not in _SCHEMES:
        raise UsageError(f"--redis {shown}: not the URL of Redis", _EXAMPLE)
    if importlib.util.find_spec("prefect_redis") is None:
        raise lacking("a second server", "prefect_redis", "redis")
    from redis.exceptions import RedisError

    try:
        with _client(url) as client:
            info: Any = client.info()
    except (RedisError, OSError, ValueError) as error:
        raise EnvironmentFault(
            f"--redis {shown} cannot be used: {error or type(error).__name__}",
            "start Redis, and check host, port, user and password",
        ) from error
    release = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if release < _OLDEST:
        raise EnvironmentFault(
            f"--redis {shown} is Redis {info['redis_version']}; Prefect needs 6.2 or newer", "use a newer one"
        )
    return list(warnings_about(info))


def warnings_about(info: dict[str, Any]) -> list[str]:
    """Return warnings about settings of Redis that can lose data; ``info`` is the answer to INFO."""
    found = []
    if not info.get("aof_enabled"):
        found.append(
            "Redis keeps no append-only file: when it restarts, the places of running flows are lost and the "
            "runs end at their next renewal; set `appendonly yes`"
        )
    if info.get("maxmemory") and info.get("maxmemory_policy") != "noeviction":
        found.append("Redis drops data when its memory is full; set `maxmemory-policy noeviction`")
    return found


def _client(url: str) -> Redis:
    from prefect_redis.connection import redis_from_url

    client: Redis = redis_from_url(
        url, socket_connect_timeout=_CONNECT_SECONDS, socket_timeout=_CONNECT_SECONDS, decode_responses=True
    )
    return client


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


def placed(default: str, others: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of infra/deploy/prefect.yaml with other work pools.

    Args:
        default: the work pool of each deployment that ``others`` does not name.
        others: name of a deployment -> its work pool.

    Raises:
        UsageError: there is no deployment of such a name.
    """
    described = _described()
    names = [deployment["name"] for deployment in described["deployments"]]
    for unknown in sorted(others.keys() - set(names)):
        raise UsageError(f"there is no deployment {unknown}", f"one of: {', '.join(names)}")
    for deployment in described["deployments"]:
        deployment["work_pool"] |= {"name": others.get(deployment["name"], default)}
    return described


def deploy(described: Mapping[str, Any], kind: str) -> list[str]:
    """Register deployments at the server of this environment; return the work pools that were created.

    Args:
        described: as ``placed`` returns it.
        kind: type of the work pools that do not exist: "process", "docker" or "kubernetes".

    Raises:
        EnvironmentFault: Prefect refused.
    """
    pools = sorted({deployment["work_pool"]["name"] for deployment in described["deployments"]})
    created = [pool for pool in pools if make_pool(pool, kind)]
    with tempfile.TemporaryDirectory(prefix="shardmill-deploy-") as folder:
        copy, log = Path(folder) / "prefect.yaml", Path(folder) / "deploy.log"
        copy.write_text(yaml.safe_dump(dict(described)))
        with Deploying({}, log, copy) as deploying:
            deploying.finish()
    return created


def _described() -> dict[str, Any]:
    described: dict[str, Any] = yaml.safe_load(prefect_file().read_text())
    return described
