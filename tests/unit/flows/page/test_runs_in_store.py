"""The page of training runs that are in an object store."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from shardmill.infra.processes.ports import free_port
from shardmill.training.run.files.stored import local_folder
from tests.samples.pages.catalogues import make_run
from tests.samples.pages.served import get
from tests.samples.stores.object_store import SECRET, Fault, ObjectStore, serve_with_credentials
from tests.samples.waiting import eventually


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve_with_credentials("page") as running:
        yield running


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path / "copies"))


def upload_run(store: ObjectStore, folder: str, name: str, made: Path) -> None:
    run = make_run(made, name)
    (run / "logs").mkdir()
    (run / "logs" / "events").write_bytes(b"1")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "1.npz").write_bytes(b"large")
    store.upload(run, f"{folder}/{name}")


def page_of(store: ObjectStore, folder: str, tmp_path: Path) -> Starlette:
    return create_app(PageOptions(str(tmp_path / "datasets"), store.location(folder)))


def test_runs_of_a_store_are_shown_and_refreshed(store: ObjectStore, tmp_path: Path) -> None:
    upload_run(store, "runs", "first", tmp_path / "made")
    with TestClient(page_of(store, "runs", tmp_path), base_url="http://127.0.0.1") as client:
        assert eventually(lambda: "/runs/first" in client.get("/runs").text)
        assert eventually(lambda: "shardmill_runs_store_up 1.0" in client.get("/metrics").text)
        assert "75" in client.get("/runs/first").text
        upload_run(store, "runs", "second", tmp_path / "made")
        assert eventually(lambda: "/runs/second" in client.get("/runs").text)
        shown, figures = client.get("/").text, client.get("/metrics").text
    assert "runs in <code>s3://page/runs</code>" in shown
    assert 'shardmill_training_runs{state="finished"} 2.0' in figures
    assert 'shardmill_disk_free_bytes{holds="datasets"}' in figures
    assert 'holds="runs"' not in figures
    copy = local_folder(store.location("runs")) / "second"
    assert (copy / "logs" / "events").read_bytes() == b"1", "for TensorBoard"
    assert not (copy / "checkpoints").exists()


def test_the_page_says_that_runs_are_not_copied_yet(store: ObjectStore, tmp_path: Path) -> None:
    app = page_of(store, "later", tmp_path)
    for path in ("/", "/live", "/runs", "/aliases"):
        assert "The runs of s3://page/later are being copied to this machine" in get(app, path).text
    assert "There are none yet" not in get(app, "/runs").text
    assert "shardmill_runs_store_up 0.0" in get(app, "/metrics").text


def test_the_page_says_why_runs_cannot_be_copied(store: ObjectStore, tmp_path: Path) -> None:
    upload_run(store, "refused", "first", tmp_path / "made")
    store.faults.append(Fault("refused/first/run.json", status=403))
    with TestClient(page_of(store, "refused", tmp_path), base_url="http://127.0.0.1") as client:
        assert eventually(lambda: "cannot be copied to this machine" in client.get("/runs").text)
        assert "refused/first/run.json" in client.get("/runs").text
        assert SECRET not in client.get("/runs").text
        store.faults.clear()
        assert eventually(lambda: "/runs/first" in client.get("/runs").text)
        assert eventually(lambda: "cannot be copied" not in client.get("/runs").text)


def test_tensorboard_reads_the_copy(store: ObjectStore, tmp_path: Path) -> None:
    location, port = store.location("curves"), free_port()
    writer = EventFileWriter(str(local_folder(location) / "first" / "logs"))
    writer.add_event(Event(step=1))
    writer.close()
    board = subprocess.Popen(
        [sys.executable, "-m", "shardmill.flows.server.service_process", "tensorboard", str(port)],
        env={**os.environ, "SHARDMILL_RUNS": location},
    )

    def lists_the_run() -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/tensorboard/data/runs", timeout=10
            ) as answer:
                return b"first/logs" in answer.read()
        except OSError:
            return False

    try:
        assert eventually(lists_the_run)
    finally:
        board.terminate()
        board.wait(60)
