"""The logs of services stay small, and Prefect's server answers requests again that SQLite refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from shardmill.flows.page.access import own_hosts_only
from shardmill.flows.server.answers import AgainWhileLocked
from shardmill.flows.server.services import rotate


def test_a_log_moves_away_beyond_a_size_and_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("ab", buffering=0) as writer:
        for line in (b"first\n", b"second\n", b"third\n"):
            writer.write(line)
            rotate(path, limit_bytes=6)
        writer.write(b"4\n")
        rotate(path, limit_bytes=6)
    assert path.read_text() == "4\n"
    assert (tmp_path / "server.log.1").read_text() == "third\n"
    assert (tmp_path / "server.log.2").read_text() == "second\n"
    rotate(tmp_path / "none.log")


@pytest.mark.parametrize(("refusals", "status"), [(0, 201), (2, 201), (99, 503)])
def test_a_request_is_answered_again_while_the_database_is_locked(refusals: int, status: int) -> None:
    bodies = []

    async def prefect(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        bodies.append(message["body"])
        answer = 503 if len(bodies) <= refusals else 201
        await send({"type": "http.response.start", "status": answer, "headers": []})
        await send({"type": "http.response.body", "body": str(answer).encode()})
        if answer == 503:
            raise OSError("database is locked")  # as Starlette does, after the answer

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(AgainWhileLocked(prefect), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/api/flow_runs/", content=b"a run")

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.text) == (status, str(status))
    assert set(bodies) == {b"a run"}
    assert len(bodies) == (refusals + 1 if status == 201 else 8)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"HTTP_HOST": "127.0.0.1:6006"}, "200"),
        ({"HTTP_HOST": "evil.example:6006"}, "403"),
        ({"HTTP_HOST": "127.0.0.1:6006", "HTTP_ORIGIN": "http://evil.example"}, "403"),
        ({}, "403"),
    ],
)
def test_tensorboard_answers_its_own_hosts_alone(headers: dict[str, str], status: str) -> None:
    said = []

    def board(_environ: object, start: object) -> list[bytes]:
        assert callable(start)
        start("200 OK", [])
        return [b"curves"]

    answer = b"".join(own_hosts_only(board)(headers, lambda status, _: said.append(status[:3])))
    assert said == [status]
    assert (answer == b"curves") is (status == "200")
