"""The Prefect API that a command uses, and its error if there is none."""

from __future__ import annotations

import base64
import http.server
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shardmill.flows.flow_runs import api_requests
from shardmill.flows.server import api
from shardmill.flows.server.running_up import RunningUp, up_lock, write_running_up
from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.infra.processes.ports import free_port


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))


@contextmanager
def answering(health: bytes, auth: str | None = None, after_seconds: float = 0) -> Iterator[str]:
    """Address of an API that answers ``health``, and asks for a password everywhere else."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            time.sleep(after_seconds)
            given = self.headers.get("Authorization")
            wanted = f"Basic {base64.b64encode(auth.encode()).decode()}" if auth else None
            is_in = self.path == "/api/health" or wanted in (None, given)
            self.send_response(200 if is_in else 401)
            self.end_headers()
            self.wfile.write(health)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/api"
        server.shutdown()


def test_an_api_url_where_nothing_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with pytest.raises(EnvironmentFault, match=url) as raised:
        api.standing_api()
    assert raised.value.remedy
    assert "unset PREFECT_API_URL" in raised.value.remedy


@pytest.mark.parametrize(
    "url", ["nonsense", "127.0.0.1:4200/api", "http://", "http://h:port/api", "http://[::"]
)
def test_an_api_url_that_is_none_is_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", url)
    with pytest.raises(ConfigError, match="is not the address of a server"):
        api.standing_api()


def test_a_server_that_is_not_prefect_is_none() -> None:
    with answering(b"<html>") as url:
        assert not api_requests.answers(url)


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "asks for a password"), ("a:wrong", "does not accept the password in PREFECT_API_AUTH_STRING")],
)
def test_a_missing_password_is_named(given: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(b"true", auth="a:b") as url:
        monkeypatch.setenv("PREFECT_API_URL", url)
        if given:
            monkeypatch.setenv("PREFECT_API_AUTH_STRING", given)
        with pytest.raises(EnvironmentFault, match=said) as raised:
            api.standing_api()
        assert "PREFECT_API_AUTH_STRING=user:password" in (raised.value.remedy or "")
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", "a:b")
        found = api.standing_api()
    assert found is not None
    assert found.auth == "a:b"


def test_without_a_server_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert api.standing_api() is None


def test_a_slow_server_of_a_running_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with up_lock(process_id=os.getpid()), answering(b"true", after_seconds=2.5) as url:
        port = urlsplit(url).port
        assert port is not None
        write_running_up(RunningUp(os.getpid(), "127.0.0.1", port, "/d", "/r"))
        found = api.standing_api()
    assert found is not None
    assert found.url == url


def test_a_command_waits_longer_for_a_server_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(EnvironmentFault, match="no Prefect server that could serve") as raised:
        api.need_api("that could serve")
    assert raised.value.remedy == "start one: shardmill up --detach"
    with up_lock(process_id=os.getpid()), answering(b"true", after_seconds=6.5) as url:
        port = urlsplit(url).port
        assert port is not None
        write_running_up(RunningUp(os.getpid(), "127.0.0.1", port, "/d", "/r"))
        api.need_api("that could serve")


def test_the_page_of_a_run_is_on_the_interface() -> None:
    assert api.Api("http://h/api", "http://h").run_page("7") == "http://h/runs/flow-run/7"


def test_without_a_server_the_remedy_is_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(EnvironmentFault, match="no Prefect server is running"), api.prefect_api():
        pass
