"""OpenLineage events, to a server of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from shardmill.infra.errors import Cancelled, DataError
from shardmill.infra.lineage import LineageDataset, reported_job
from shardmill.infra.progress import subscribe

pytest.importorskip("openlineage", reason="the extra openlineage is not installed")


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server's address, and the events that it got."""
    events: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", events
        server.shutdown()
        thread.join()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    with receiver() as (url, found):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield found


SOURCE = LineageDataset("s3://key:secret@bucket/photos?region=x")


def test_a_job_that_succeeds_names_what_it_read_and_wrote(events: list[dict[str, Any]]) -> None:
    with reported_job("prepare.photos", [SOURCE]) as lineage:
        lineage.outputs.append(LineageDataset("/data/datasets/photos", "3", 120))
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    end = events[1]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("shardmill", "prepare.photos")
    (read,), (written,) = end["inputs"], end["outputs"]
    assert (read["namespace"], read["name"]) == ("s3://bucket", "photos")
    assert (written["namespace"], written["name"]) == ("file", "/data/datasets/photos")
    assert written["facets"]["version"]["datasetVersion"] == "3"
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 120
    assert "secret" not in json.dumps(events)


@pytest.mark.parametrize(
    ("error", "state"),
    [(DataError("all broken"), "FAIL"), (ValueError("odd"), "FAIL"), (Cancelled("stopped"), "ABORT")],
)
def test_a_job_that_fails_says_why(events: list[dict[str, Any]], error: Exception, state: str) -> None:
    with pytest.raises(type(error)), reported_job("train.photos", [SOURCE]):
        raise error
    assert [event["eventType"] for event in events] == ["START", state]
    assert events[1]["run"]["facets"]["errorMessage"]["message"] == str(error)


def test_a_server_that_is_away_costs_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    told: list[Any] = []
    end = subscribe(told.append)
    with reported_job("prepare.photos", [SOURCE]):
        pass
    end()
    (warning,) = [event for event in told if event["event"] == "log"]
    assert "OpenLineage at http://127.0.0.1:9 is not told about prepare.photos" in warning["message"]


def test_nobody_is_told_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as (_, events):
        monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
        with reported_job("prepare.photos", [SOURCE]):
            pass
    assert events == []


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/data/photos/", ("file", "/data/photos")),
        ("file:///data/a%20b", ("file", "/data/a b")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("gs://bucket/a/b", ("gs://bucket", "a/b")),
    ],
)
def test_names_follow_the_conventions(location: str, name: tuple[str, str]) -> None:
    assert LineageDataset(location).name() == name
