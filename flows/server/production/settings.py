"""The settings of Prefect's server in several processes."""

from __future__ import annotations

from dataclasses import dataclass

from shardmill.flows import home
from shardmill.flows.server import services
from shardmill.flows.server.database import DATABASE_SETTING

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
