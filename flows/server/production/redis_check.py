"""Check Redis before a server is started that needs it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from shardmill.flows.server.database import without_password
from shardmill.infra.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from redis import Redis

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
        raise EnvironmentFault(
            "several servers need the package prefect-redis", "pip install 'shardmill[redis]'"
        )
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
