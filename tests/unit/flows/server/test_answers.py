"""The answers to clients while Redis is away."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from redis.exceptions import ConnectionError as RedisIsAway

from shardmill.flows.server.answers import try_again_without_redis


@pytest.mark.parametrize(("error", "status"), [(RedisIsAway("refused"), 503), (ValueError("a defect"), 500)])
def test_clients_are_told_to_try_again_while_redis_is_away(error: Exception, status: int) -> None:
    server, api = FastAPI(), FastAPI()
    server.mount("/api", api)

    @api.post("/set_state")
    def set_state() -> None:
        raise error

    try_again_without_redis(server)
    with TestClient(server, raise_server_exceptions=False) as client:
        assert client.post("/api/set_state").status_code == status
