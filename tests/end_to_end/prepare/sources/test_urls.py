"""A table of addresses, through the whole of prepare: again, changed, killed while it fetches."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shardmill.beam_jobs.reasons import REASONS
from shardmill.beam_jobs.sources.fetching.store import RunStore
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.prepared import prepare_here, rows, run, stored_bytes
from tests.samples.sources.image_server import ImageServer, image, running_server, slow, status, versioned

NUM_IMAGES = 12
SETTINGS: dict[str, Any] = {
    "source": {
        "kind": "urls",
        "table": {"file": "t.csv"},
        "columns": {"image": "url"},
        "urls": {"allow_private_hosts": True, "backoff_seconds": 0.01, "retries": 1},
    },
    "image": {"size": 16},
    "failure_budget": 0.5,
}


@pytest.fixture
def server() -> Iterator[ImageServer]:
    with running_server() as server:
        yield server


def write_table(source: Path, urls: list[str]) -> Path:
    source.mkdir(exist_ok=True)
    lines = [f"{url},{'cat' if number % 3 else 'dog'}" for number, url in enumerate(urls)]
    (source / "t.csv").write_text("\n".join(["url,label", *lines]))
    return source


def given(server: ImageServer) -> list[str]:
    """Give images with validators."""
    return [
        server.give(f"/{number:02}.jpg", versioned(jpeg(number + 1), f'"{number}"'))
        for number in range(NUM_IMAGES)
    ]


def test_addresses_become_versions_and_only_changes_are_fetched(server: ImageServer, tmp_path: Path) -> None:
    urls = given(server)
    lost = [
        server.give("/gone", status(404)),
        server.give("/page", image(b"<html>", Content_Type="text/html")),
        server.give("/broken", image(jpeg(90)[:-40])),
        server.give("/reserved", image(jpeg(91), X_Robots_Tag="noai")),
        server.give("/copy?token=secret", image(jpeg(1))),
        urls[0],
        "no address",
    ]
    source, root = write_table(tmp_path / "lists", [*urls, *lost]), tmp_path / "root"
    first = run(source, root, **SETTINGS)
    version = Catalog(root).open("d@1")
    outcomes = {uri: (row["outcome"], row["reason"]) for uri, row in rows(version).items()}
    assert outcomes == {
        **dict.fromkeys(urls[1:], ("record", None)),
        urls[0]: ("quarantined", "contradicting_rows"),
        lost[0]: ("quarantined", "not_found"),
        lost[1]: ("quarantined", "not_an_image"),
        lost[2]: ("quarantined", "truncated"),
        lost[3]: ("filtered", "opted_out"),
        f"{server.url}/copy": ("record", None),
        "t.csv#row=18": ("quarantined", "contradicting_rows"),
        "t.csv#row=19": ("quarantined", "broken_row"),
    }
    assert first["num_records"] == NUM_IMAGES
    assert verify(version).problems == []
    assert {row["reason"] for row in rows(version).values() if row["reason"]} <= REASONS.keys()
    assert list((root / "d" / "spool").glob("*/")) == []  # neither bytes nor answers are left there
    assert b"secret" not in b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert max(server.counts().values()) == 1

    server.forget()
    assert run(source, root, **SETTINGS)["unchanged"]
    with_validators = [path for path, headers in server.asked if "if-none-match" in headers]
    assert len(with_validators) == NUM_IMAGES - 1

    server.give("/05.jpg", versioned(jpeg(77), '"new"'))
    later = run(source, root, **SETTINGS)
    assert (later["version"], later["num_encoded"]) == (2, 1)
    assert verify(Catalog(root).open("d@2")).problems == []

    server.forget()
    smaller = run(source, root, **{**SETTINGS, "image": {"size": 8}})
    assert (smaller["version"], smaller["num_records"]) == (3, NUM_IMAGES)
    without = [path for path, headers in server.asked if "if-none-match" not in headers]
    assert {f"{number:02}.jpg" for number in range(1, NUM_IMAGES)} <= {path[1:] for path in without}


def stored(root: Path) -> list[str]:
    """The addresses whose answers an unfinished run has stored."""
    spools = [Storage.at(path) for path in root.glob("d/spool/*/")]
    return [uri for spool in spools for uri in RunStore(spool).answers()["uri"].to_pylist()]


def test_a_dry_run_fetches_nothing(server: ImageServer, tmp_path: Path) -> None:
    source = write_table(tmp_path / "lists", given(server))
    settings = [f"source.{key}" for key in ("kind=urls", "table.file=t.csv", "columns.image=url")]
    done = prepare_here(
        source, tmp_path / "root", "--dry-run", "--json", *(w for s in settings for w in ("--set", s))
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["first_inputs"][0] == {
        "uri": f"{server.url}/00.jpg", "label": "dog", "split": None, "group": None,
    }  # fmt: skip
    assert (outcome["num_inputs"], outcome["num_to_read"]) == (NUM_IMAGES, NUM_IMAGES)
    assert not server.asked
    assert not (tmp_path / "root").exists()


def half_given(server: ImageServer) -> list[str]:
    """Give six images, and others whose first request is not answered."""
    urls = given(server)
    for number in range(6, NUM_IMAGES):
        url = f"/{number:02}.jpg"
        server.give(url, slow(status(503), 300), versioned(jpeg(number + 1), f'"{number}"'))
    return urls


def started(source: Path, root: Path) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own, with the settings of the others."""
    flags = [
        "source.kind=urls", "source.table.file=t.csv", "source.columns.image=url", "image.size=16",
        "source.urls.allow_private_hosts=true", "source.urls.connections_per_host=12",
        "runner.processes=2", "runner.block_images=8", "failure_budget=0.5",
    ]  # fmt: skip
    argv = prepare_command(source, root, *(word for flag in flags for word in ("--set", flag)))
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for(done: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for something that a process does."""
    until = time.monotonic() + 60
    while not done():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_run_that_is_stopped_while_it_fetches_keeps_what_has_come(
    server: ImageServer, tmp_path: Path
) -> None:
    source, root = write_table(tmp_path / "lists", half_given(server)), tmp_path / "root"
    process = started(source, root)
    wait_for(lambda: len(stored(root)) >= 6, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said.decode()
    assert b"run the same command again" in said
    kept = {urlsplit(uri).path for uri in stored(root)}
    assert kept >= {f"/{number:02}.jpg" for number in range(6)}

    server.forget()
    assert run(source, root, **SETTINGS)["num_records"] == NUM_IMAGES
    assert server.counts() == dict.fromkeys({f"/{number:02}.jpg" for number in range(NUM_IMAGES)} - kept, 1)


def test_a_run_that_was_killed_while_it_fetched_asks_only_for_what_is_missing(
    server: ImageServer, tmp_path: Path
) -> None:
    source, root = write_table(tmp_path / "lists", half_given(server)), tmp_path / "root"
    process = started(source, root)
    wait_for(lambda: len(stored(root)) >= 6, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert max(server.counts().values()) == 1

    server.forget()
    outcome = run(source, root, **SETTINGS)
    assert outcome["num_records"] == NUM_IMAGES
    assert server.counts() == {f"/{number:02}.jpg": 1 for number in range(6, NUM_IMAGES)}

    undisturbed = tmp_path / "undisturbed"
    run(source, undisturbed, **SETTINGS)
    assert stored_bytes(root) == stored_bytes(undisturbed)
