"""Prefect's server in several processes: its settings, its checks, and where deployments are placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.flows.server.deployments import prefect_file
from shardmill.flows.server.production import (
    Backends,
    check_redis,
    migration_environment,
    placed,
    server_environment,
    warnings_about,
)
from shardmill.infra.errors import UsageError

_BACKENDS = Backends("postgresql+asyncpg://prefect:secret@db/prefect", "redis://redis:6379/0")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    for variable in ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_REDIS_MESSAGING_URL"):
        monkeypatch.delenv(variable, raising=False)


def _settings(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Any:
    from prefect.settings import Settings

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Settings()


def test_prefect_takes_every_setting_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = server_environment(_BACKENDS, "https://prefect.example", "team:secret")
    server = _settings(monkeypatch, environment).server
    assert server.database.connection_url.get_secret_value() == _BACKENDS.database
    assert (server.database.migrate_on_start, server.register_blocks_on_start) == (False, False)
    assert server.events.messaging_broker == server.events.messaging_cache == "prefect_redis.messaging"
    assert server.events.causal_ordering == "prefect_redis.ordering"
    assert server.concurrency.lease_storage == "prefect_redis.lease_storage"
    assert server.worker_channel.cleanup_queue_storage == "prefect_redis.cleanup_queue"
    assert server.docket.url == _BACKENDS.redis
    assert server.api.auth_string.get_secret_value() == "team:secret"
    assert (server.api.csrf_protection_enabled, server.api.cors_allowed_origins) == (
        True,
        "https://prefect.example",
    )
    assert not server.services.repossessor.enabled


def test_only_the_migration_changes_the_database_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _settings(monkeypatch, migration_environment(_BACKENDS.database)).server
    assert (server.database.migrate_on_start, server.register_blocks_on_start) == (True, True)
    assert not server.memoize_block_auto_registration


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"aof_enabled": 1, "maxmemory": 0, "maxmemory_policy": "allkeys-lru"}, []),
        ({"aof_enabled": 0, "maxmemory": 0}, ["appendonly yes"]),
        ({"aof_enabled": 1, "maxmemory": 1 << 30, "maxmemory_policy": "allkeys-lru"}, ["noeviction"]),
        ({"aof_enabled": 1, "maxmemory": 1 << 30, "maxmemory_policy": "noeviction"}, []),
    ],
)
def test_settings_of_redis_that_lose_data_are_warned_of(info: dict[str, Any], words: list[str]) -> None:
    warnings = warnings_about(info)
    assert len(warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))


def test_a_url_that_is_not_of_redis_is_refused_without_its_password() -> None:
    with pytest.raises(UsageError, match=r"--redis http://me:\*\*\*@host: not the URL of Redis"):
        check_redis("http://me:secret@host")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["platform", "server", "migrate"], "--database is missing"),
        (
            ["platform", "server", "api", "--database", "sqlite+aiosqlite:///x.db", "--redis", "redis://h"],
            "need PostgreSQL",
        ),
        (["platform", "server", "api", "--database", _BACKENDS.database], "--redis is missing"),
        (
            [
                "platform",
                "server",
                "api",
                "--host",
                "0.0.0.0",
                "--database",
                _BACKENDS.database,
                "--redis",
                "redis://h",
            ],
            "--auth",
        ),
        (["platform", "deploy", "--place", "gpu"], "--place gpu: not a pool and its deployments"),
        (
            ["platform", "deploy", "--place", "gpu=train", "--place", "cpu=train"],
            "--place puts train on gpu and on cpu",
        ),
        (["platform", "deploy", "--place", "gpu=training"], "there is no deployment training"),
    ],
)
def test_wrong_options_are_refused_in_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in server_environment(_BACKENDS, "http://h"):  # the variables are restored after the test
        monkeypatch.setenv(name, "")
    assert cli.run(arguments) == 2
    assert words in capsys.readouterr().err


def test_deployments_are_placed_on_pools_and_nothing_else_changes() -> None:
    import yaml

    described = placed("cpu", {"train": "gpu", "pipeline": "gpu"})
    pools = {deployment["name"]: deployment["work_pool"]["name"] for deployment in described["deployments"]}
    assert {name for name, pool in pools.items() if pool == "gpu"} == {"train", "pipeline"}
    assert set(pools.values()) == {"cpu", "gpu"}
    original = yaml.safe_load(prefect_file().read_text())
    for one, other in zip(described["deployments"], original["deployments"], strict=True):
        assert {**one, "work_pool": None} == {**other, "work_pool": None}
