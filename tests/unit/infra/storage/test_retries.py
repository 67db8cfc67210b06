"""Requests to object stores are repeated while their failure may pass, and not otherwise."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from shardmill.infra.errors import NotFoundError, StorageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.objects.retries import ObjectReader, is_retryable
from shardmill.infra.storage.range_reader import RangeReader
from tests.samples.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.samples.stores.object_store import KEY, SECRET, ObjectStore


@pytest.fixture
def proxy(store: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(store.port) as running:
        yield running


def through(proxy: FaultyProxy, folder: str) -> Storage:
    place = f"storage/{folder}?endpoint_override=127.0.0.1:{proxy.port}&scheme=http&region=us-east-1"
    return Storage.at(f"s3://{KEY}:{SECRET}@{place}")


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("AWS Error INTERNAL_FAILURE during GetObject operation: Failed to flush response stream", True),
        ("AWS Error SLOW_DOWN during ListObjectsV2 operation", True),
        ("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation", True),
        ("AWS Error NETWORK_CONNECTION: curlCode: 28, Timeout was reached", True),
        ("Server returned non-2xx status code: 429 Too Many Requests", True),
        ("Server returned non-2xx status code: 400 Bad Request: RequestTimeout", True),
        ("AWS Error ACCESS_DENIED during HeadObject operation", False),
        ("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation", False),
        ("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation", False),
        ("Server returned non-2xx status code: 501 Not Implemented", False),
        (
            "DownloadTo from 'x' failed. Azure Error: [BlobArchived] 409 This operation is not permitted",
            False,
        ),
        ("Azure Error: [OperationTimedOut] 500 The operation could not be completed", True),
    ],
)
def test_what_is_retryable(text: str, passes: bool) -> None:
    assert is_retryable(OSError(text)) is passes


def test_what_is_not_there_is_not_asked_for_again(proxy: FaultyProxy) -> None:
    assert not is_retryable(FileNotFoundError("absent"))
    with pytest.raises(NotFoundError):
        through(proxy, "absent").read_bytes("absent")


@pytest.mark.parametrize("kind", ["500", "503", "reset", "cut", "lost"])
def test_every_operation_survives_faults(proxy: FaultyProxy, kind: str) -> None:
    storage = through(proxy, f"faults-{kind}")
    storage.create_if_absent("first", b"")
    proxy.kinds, proxy.share = (kind,), 0.15
    data = os.urandom(3000)
    for number in range(6):
        storage.create_if_absent(f"manifests/{number}", data)
        storage.write_atomic(f"data/{number}", data)
        assert storage.read_bytes(f"data/{number}") == data
        # A short read, whose error page is longer than what was asked for.
        assert storage.read_range(f"data/{number}", 10, 5) == data[10:15]
        assert RangeReader(storage).read(f"data/{number}", 20, 7) == data[20:27]
        assert storage.exists(f"data/{number}")
        assert len(storage.list_files("data")) == number + 1
    storage.delete("data/0")
    storage.delete_tree("data")
    assert storage.list_files("data") == []
    assert len(storage.list_files("manifests")) == 6
    assert proxy.injected[kind] > 3


def test_a_body_that_came_too_slowly_is_sent_again(proxy: FaultyProxy) -> None:
    """S3 says so with status 400, as it does of requests that will never succeed."""
    storage = through(proxy, "slowly")
    storage.create_if_absent("first", b"")
    proxy.kinds, proxy.methods, proxy.share = ("400 RequestTimeout",), frozenset({"PUT", "GET"}), 1.0
    for number in range(1, 4):
        proxy.most = 2 * number - 1
        storage.create_if_absent(f"manifests/{number}", b"1")
        proxy.most = 2 * number
        storage.write_atomic(f"data/{number}", b"2")
        assert proxy.injected["400 RequestTimeout"] == 2 * number
    proxy.most += 1
    assert storage.read_bytes("data/1") == b"2"
    assert storage.read_bytes("manifests/1") == b"1"


@pytest.mark.slow
def test_requests_that_are_never_answered_are_sent_again(proxy: FaultyProxy) -> None:
    storage = through(proxy, "stalls")
    storage.create_if_absent("first", b"1")
    proxy.kinds, proxy.share = ("stall",), 1.0
    operations: list[tuple[str, Callable[[], object]]] = [
        ("create", lambda: storage.create_if_absent("second", b"2")),
        ("write", lambda: storage.write_atomic("third", b"3")),
        ("read", lambda: storage.read_bytes("first")),
        ("list", lambda: storage.list_files()),
        ("delete", lambda: storage.delete("first")),
    ]
    for number, (name, operation) in enumerate(operations, 1):
        proxy.most = number
        began = time.monotonic()
        operation()
        assert proxy.injected["stall"] == number, name
        assert time.monotonic() - began < 100, name
    assert [entry.path for entry in storage.list_files()] == ["second", "third"]


def test_an_error_of_the_network_speaks_of_the_network(proxy: FaultyProxy) -> None:
    storage = through(proxy, "forbidden")
    proxy.kinds, proxy.share = ("403",), 1.0
    with pytest.raises(StorageError, match="check the network, the credentials and the store") as caught:
        storage.write_atomic("file", b"1")
    assert "free space" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_block_that_fails_writes_no_object(store: ObjectStore, proxy: FaultyProxy) -> None:
    storage = through(proxy, "failed")

    def write_and_fail() -> None:
        with storage.atomic_writer("file") as stream:
            stream.write(b"half")
            assert stream.tell() == 4
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert store.all_keys("failed") == []


def test_a_reader_that_could_not_be_opened_closes_in_silence() -> None:
    """If ``__init__`` fails, Python still closes the object; since 3.13 it prints an error of closing."""
    ObjectReader.__new__(ObjectReader).close()
