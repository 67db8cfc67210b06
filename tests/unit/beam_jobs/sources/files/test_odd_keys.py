"""Objects in S3 whose keys no file could have, and objects that their store does not give."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import UNREADABLE
from shardmill.beam_jobs.schemas import FileRef, file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.errors import ObjectRefused, StorageError
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.archives import make_tar
from tests.samples.stores.object_store import KEY, SECRET, Fault, ObjectStore, serve_with_credentials
from tests.samples.stores.odd_keys import check_odd_keys


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve_with_credentials("keys") as running:
        yield running


def client(store: ObjectStore) -> Any:
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{store.port}", region_name="us-east-1")


def test_each_key_is_read_or_costs_its_row(store: ObjectStore) -> None:
    s3 = client(store)

    def put(key: str, data: bytes) -> None:
        s3.put_object(Bucket=store.bucket, Key=key, Body=data)

    check_odd_keys(store.location("odd"), put, left_out=("dog/new\nline.jpg",))  # this server cannot hold it


def test_a_key_that_ends_in_a_slash_is_no_other_object(store: ObjectStore) -> None:
    """Arrow lists both without the slash."""
    for key, data in {"a.jpg": b"first", "a.jpg/": b"another", "a.jpg-": b"between"}.items():
        client(store).put_object(Bucket=store.bucket, Key=f"slash/dog/{key}", Body=data)
    folder, config = SourceFolder(store.location("slash")), PrepareConfig()
    listing = list_inputs(folder, config)
    assert listing.table["uri"].to_pylist() == ["dog/a.jpg", "dog/a.jpg-", "dog/a.jpg/"]
    reader = open_reader(folder, config)
    assert [reader.read(file) for file in file_refs(listing.to_read())] == [b"first", b"between"]


@pytest.mark.parametrize("kind", ["image_folder", "archive"])
def test_an_object_that_its_store_refuses_costs_its_row(
    kind: str, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an archived object, or one that another key encrypts."""
    source = f"refused-{kind}"
    for name in ("0", "1"):
        image = {f"dog/{name}.jpg": jpeg(int(name))}
        if kind == "archive":
            make_tar(tmp_path / f"{name}.tar", image)
        else:
            write(tmp_path, image)
    store.upload(tmp_path, source)
    monkeypatch.setattr(store, "faults", [Fault(f"{source}/0", 403), Fault(f"{source}/dog/0", 403)])
    folder, config = (
        SourceFolder(store.location(source)),
        PrepareConfig.model_validate({"source": {"kind": kind}}),
    )
    listing = list_inputs(folder, config)
    reader = open_reader(folder, config)
    lost = [(row["reason"], row["message"]) for row in listing.table.to_pylist() if row["reason"]]
    for file in file_refs(listing.to_read()):
        try:
            reader.read(file)
        except SourceFault as fault:
            lost.append((fault.reason, fault.message))
    ((reason, message),) = lost
    assert reason == UNREADABLE
    assert "the store refuses it (ACCESS_DENIED)" in message


def test_a_store_that_refuses_everything_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when credentials expire: no image is at fault."""

    class Refusing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        do_GET = do_HEAD  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        place = f"s3://{KEY}:{SECRET}@keys/in?endpoint_override=http://127.0.0.1:{server.server_port}&region=us-east-1"
        with pytest.raises(StorageError, match="ACCESS_DENIED") as caught:
            SourceFolder(place).read(FileRef("dog/1.jpg", 5, 0))
        assert not isinstance(caught.value, ObjectRefused)
    finally:
        server.shutdown()
        server.server_close()
