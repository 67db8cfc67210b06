"""Fetching from a real server of this machine that gives every kind of trouble."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardmill.beam_jobs.config import UrlsConfig
from shardmill.beam_jobs.sources.fetching.addresses import read_address
from shardmill.beam_jobs.sources.fetching.client import retry_after
from shardmill.beam_jobs.sources.fetching.fetcher import GIVEN_UP_AFTER
from shardmill.beam_jobs.sources.fetching.rounds import REQUESTS_SCHEMA, fetch_all, settled_uris
from shardmill.beam_jobs.sources.fetching.store import ANSWERS_SCHEMA, RunStore
from shardmill.infra.storage.filesystem import Storage
from tests.samples.sources.image_server import (
    ImageServer,
    Step,
    cut_off,
    endless,
    image,
    redirect,
    running_server,
    silent,
    slow,
    status,
    versioned,
)

IMAGE = b"not really an image, but bytes" * 100
MAX_BYTES = 100_000


@pytest.fixture
def server() -> Iterator[ImageServer]:
    with running_server() as server:
        yield server


@dataclass
class Fetched:
    """Fetches into one spool, as a run does that may be started again."""

    spool: Storage
    settings: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *urls: str, known: pa.Table | None = None, **settings: Any) -> list[dict[str, Any]]:
        """Fetch addresses; returns the last answer of each."""
        store = RunStore(self.spool)
        addresses = [read_address(url) for url in urls]
        requests = pa.table(
            [[a.uri for a in addresses], [a.url for a in addresses], [a.host for a in addresses]],
            schema=REQUESTS_SCHEMA,
        )
        quick = {
            "backoff_seconds": 0.01,
            "connect_seconds": 5,
            "read_seconds": 0.3,
            "total_seconds": 5,
            "retries": 2,
            "allow_private_hosts": True,
        }
        config = UrlsConfig.model_validate({**quick, **self.settings, **settings})
        known = ANSWERS_SCHEMA.empty_table() if known is None else known
        fetch_all(requests, known, settled_uris(store.answers()), store, config, MAX_BYTES)
        answers = {row["uri"]: row for row in store.answers().to_pylist()}
        return [answers[address.uri] for address in addresses]

    def bytes_of(self, url: str) -> bytes:
        return RunStore(self.spool).get(read_address(url).uri)


@pytest.fixture
def fetched(tmp_path: Path) -> Fetched:
    return Fetched(Storage.at(tmp_path))


def test_an_image_is_stored_with_its_digest_and_validators(server: ImageServer, fetched: Fetched) -> None:
    url = server.give("/a.jpg", image(IMAGE, ETag='"1"', Last_Modified="Mon, 02 Nov 2026 08:00:00 GMT"))
    (answer,) = fetched(url, contact="https://example.org/me")
    assert answer == {
        "uri": url,
        "size_bytes": len(IMAGE),
        "sha256": hashlib.sha256(IMAGE).digest(),
        "etag": '"1"',
        "last_modified": "Mon, 02 Nov 2026 08:00:00 GMT",
        "final_uri": url,
        "reason": None,
        "message": None,
    }
    assert fetched.bytes_of(url) == IMAGE
    ((_, headers),) = server.asked
    assert headers["user-agent"].startswith("Shardmill/")
    assert headers["user-agent"].endswith("(+https://example.org/me)")
    assert headers["accept-encoding"] == "identity"
    assert {"cookie", "authorization", "referer"}.isdisjoint(headers)


@pytest.mark.parametrize(
    ("steps", "reason", "num_requests"),
    [
        ([status(404)], "not_found", 1),
        ([status(410)], "not_found", 1),
        ([status(403)], "access_denied", 1),
        ([status(451)], "access_denied", 1),
        ([status(418)], "server_error", 1),
        ([status(500)], "server_error", 3),
        ([status(501)], "server_error", 1),
        ([status(429)], "too_many_requests", 3),
        ([status(304)], "server_error", 1),  # although nothing was known
        ([status(206)], "server_error", 1),
        ([status(500), image(IMAGE)], None, 2),
        ([status(503), status(502), image(IMAGE)], None, 3),
        ([status(500), status(404)], "not_found", 2),
        ([image(IMAGE, Content_Type="text/html; charset=utf-8")], "not_an_image", 1),
        ([image(IMAGE, Content_Type="application/json")], "not_an_image", 1),
        ([image(IMAGE, Content_Type="")], None, 1),
        ([image(IMAGE, Content_Type="application/octet-stream")], None, 1),
        ([image(IMAGE, Content_Encoding="gzip")], "not_an_image", 1),
        ([image(IMAGE, X_Robots_Tag="noai")], "opted_out", 1),
        ([image(IMAGE, TDM_Reservation="1")], "opted_out", 1),
        ([image(bytes(MAX_BYTES + 1))], "too_large", 1),
        ([image(bytes(MAX_BYTES))], None, 1),
        ([image(IMAGE, Content_Length=str(10**12))], "too_large", 1),
        ([endless()], "too_large", 1),
        ([endless(seconds_apart=1)], "timed_out", 3),
        ([cut_off(IMAGE, len(IMAGE) + 1)], "broken_off", 3),
        ([cut_off(IMAGE, len(IMAGE) + 1), image(IMAGE)], None, 2),
        ([silent()], "unreachable", 3),
        ([slow(image(IMAGE), 0.1)], None, 1),
        ([redirect("")], "bad_redirect", 1),
        ([redirect("ftp://h/a.jpg")], "bad_redirect", 1),
        ([redirect("file:///etc/passwd")], "bad_redirect", 1),
        ([redirect("http://user:secret@h/a.jpg")], "bad_redirect", 1),
        ([redirect("http://[/")], "bad_redirect", 1),
    ],
)  # fmt: skip
def test_every_answer_of_a_server_becomes_an_outcome(
    server: ImageServer, fetched: Fetched, steps: list[Step], reason: str | None, num_requests: int
) -> None:
    (answer,) = fetched(server.give("/x", *steps))
    assert answer["reason"] == reason
    assert (answer["message"] is None) == (reason is None)
    assert server.counts() == {"/x": num_requests}
    assert "secret" not in str(answer)


def test_a_length_that_lies_ends_the_image_where_it_says(server: ImageServer, fetched: Fetched) -> None:
    (answer,) = fetched(server.give("/short", image(IMAGE, Content_Length="10")))
    assert (answer["size_bytes"], answer["reason"]) == (10, None)  # the decoders find that it is truncated


def test_redirects_are_followed_and_the_first_address_names_the_image(
    server: ImageServer, fetched: Fetched
) -> None:
    server.give("/c.jpg?token=1", image(IMAGE))
    server.give("/b", redirect("c.jpg?token=1", 307))
    (answer,) = fetched(server.give("/a", redirect("/b", 301)))
    assert (answer["uri"], answer["final_uri"]) == (f"{server.url}/a", f"{server.url}/c.jpg")
    assert fetched.bytes_of(f"{server.url}/a") == IMAGE


def test_redirects_in_a_circle_and_without_end_are_left(server: ImageServer, fetched: Fetched) -> None:
    server.give("/b", redirect("/a"))
    for number in range(9):
        server.give(f"/r{number}", redirect(f"/r{number + 1}"))
    circle, long = fetched(server.give("/a", redirect("/b")), f"{server.url}/r0", max_redirects=4)
    assert (circle["reason"], circle["message"]) == ("bad_redirect", "it redirects in a circle")
    assert (long["reason"], long["message"]) == ("bad_redirect", "it redirects more than 4 times")
    assert server.counts()["/r5"] == 0


def test_private_hosts_are_asked_only_where_that_is_allowed(server: ImageServer, fetched: Fetched) -> None:
    url = server.give("/a.jpg", image(IMAGE))
    (answer,) = fetched(url, allow_private_hosts=False)
    assert answer["reason"] == "private_host"
    assert not server.asked
    (answer,) = fetched("http://no-such-host.invalid/a.jpg")
    assert answer["reason"] == "unreachable"


def test_every_hop_of_a_redirect_is_checked(server: ImageServer, fetched: Fetched) -> None:
    """A redirect to a host that only a check of the first hop would let through."""
    (answer,) = fetched(server.give("/a", redirect("http://no-such-host.invalid/b")))
    assert answer["reason"] == "unreachable"
    assert server.counts() == {"/a": 1}


@pytest.mark.parametrize("as_date", [False, True])
def test_a_server_that_asks_to_wait_is_left_alone_meanwhile(
    server: ImageServer, fetched: Fetched, as_date: bool
) -> None:
    wait = formatdate(time.time() + 60, usegmt=True) if as_date else "1"
    urls = [
        server.give("/busy", status(429, Retry_After=wait), image(IMAGE)),
        *(server.give(f"/later{number}", image(IMAGE)) for number in range(3)),
    ]
    answers = fetched(*urls, connections_per_host=1, max_wait_seconds=0.5)
    assert [answer["reason"] for answer in answers] == ["too_many_requests", None, None, None]
    assert [path for path, _ in server.asked] == ["/busy", "/later0", "/later1", "/later2"]
    assert server.times[1] - server.times[0] >= 0.5


def test_a_server_that_asks_for_a_short_wait_is_asked_again_after_it(
    server: ImageServer, fetched: Fetched
) -> None:
    (answer,) = fetched(server.give("/busy", status(503, Retry_After="1"), image(IMAGE)))
    assert answer["reason"] is None
    assert server.times[1] - server.times[0] >= 1


def test_a_server_that_asks_for_too_long_a_wait_is_not_asked_again(
    server: ImageServer, fetched: Fetched
) -> None:
    url = server.give("/busy", status(503, Retry_After="3600"), image(IMAGE))
    (answer,) = fetched(url, max_wait_seconds=0.1)
    assert answer["reason"] == "server_error"
    assert server.counts() == {"/busy": 1}


@pytest.mark.parametrize(
    ("value", "seconds"), [(None, None), ("7", 7.0), ("soon", None), ("-1", None), ("1" * 400, float("inf"))]
)
def test_what_retry_after_says(value: str | None, seconds: float | None) -> None:
    assert retry_after(value) == seconds
    assert retry_after("Mon, 02 Nov 2020 08:00:00 GMT") == 0


def test_only_so_many_requests_go_to_a_host_at_a_time(server: ImageServer, fetched: Fetched) -> None:
    urls = [server.give(f"/n{number}", slow(image(IMAGE), 0.03)) for number in range(12)]
    fetched(*urls, connections_per_host=3)
    assert server.most_at_a_time == 3


def test_requests_to_a_host_begin_apart(server: ImageServer, fetched: Fetched) -> None:
    urls = [server.give(f"/d{number}", image(IMAGE)) for number in range(4)]
    started = time.monotonic()
    fetched(*urls, delay_seconds=0.3)
    assert time.monotonic() - started >= 0.9


def test_a_host_that_never_answers_is_given_up(server: ImageServer, fetched: Fetched) -> None:
    urls = [server.give(f"/s{number}", silent()) for number in range(GIVEN_UP_AFTER * 2)]
    answers = fetched(*urls, retries=0, read_seconds=0.05, connections_per_host=4)
    assert {answer["reason"] for answer in answers} == {"unreachable"}
    assert GIVEN_UP_AFTER <= len(server.asked) < GIVEN_UP_AFTER + 4


def test_unchanged_images_are_not_sent_again(server: ImageServer, fetched: Fetched, tmp_path: Path) -> None:
    urls = [
        server.give("/tagged", versioned(IMAGE, '"7"')),
        server.give("/changing", versioned(IMAGE, '"1"'), versioned(b"other", '"2"')),
        server.give("/reserved", versioned(IMAGE, '"3"'), versioned(IMAGE, '"3"', X_Robots_Tag="noai")),
    ]
    fetched(*urls)
    server.forget()
    later = Fetched(Storage.at(tmp_path / "later"))
    tagged, changing, reserved = later(*urls, known=RunStore(fetched.spool).answers())
    asked = {path: headers.get("if-none-match") for path, headers in server.asked}
    assert asked == {"/tagged": '"7"', "/changing": '"1"', "/reserved": '"3"'}
    assert tagged["sha256"] == hashlib.sha256(IMAGE).digest()
    assert RunStore(later.spool).without_bytes(urls) == [urls[0], urls[2]]
    assert (changing["etag"], changing["size_bytes"]) == ('"2"', 5)
    assert reserved["reason"] == "opted_out"


def test_validators_go_only_to_the_address_that_sent_the_image(
    server: ImageServer, fetched: Fetched, tmp_path: Path
) -> None:
    server.give("/new", versioned(IMAGE, '"1"'))
    url = server.give("/old", redirect("/new"), status(304), redirect("/new"))
    fetched(url)
    server.forget()
    (answer,) = Fetched(Storage.at(tmp_path / "later"))(url, known=RunStore(fetched.spool).answers())
    assert answer["reason"] == "server_error"  # 304 of an address that was sent no validators
    (answer,) = Fetched(Storage.at(tmp_path / "last"))(url, known=RunStore(fetched.spool).answers())
    assert answer["sha256"] == hashlib.sha256(IMAGE).digest()
    assert [headers.get("if-none-match") for _, headers in server.asked] == [None, None, '"1"']


def test_a_run_that_is_started_again_asks_only_for_what_is_missing(
    server: ImageServer, fetched: Fetched
) -> None:
    urls = [
        server.give("/good", image(IMAGE)),
        server.give("/gone", status(404)),
        server.give("/ill", status(500), status(500), status(500), image(IMAGE)),
    ]
    assert [answer["reason"] for answer in fetched(*urls)] == [None, "not_found", "server_error"]
    server.forget()
    assert [answer["reason"] for answer in fetched(*urls)] == [None, "not_found", None]
    assert server.counts() == {"/ill": 1}
