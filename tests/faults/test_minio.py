"""Publishing and locking on a real MinIO server, where the program `minio` is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from infra.errors import LockedError
from infra.storage.filesystem import Storage
from tests.samples.faulty_proxy import faulty_proxy
from tests.samples.races import NUM_RACES, winners

pytestmark = pytest.mark.slow

USER, PASSWORD = "minio-of-tests", "password-of-tests"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = shutil.which(os.environ.get("MINIO", "minio"))
    if program is None:
        pytest.skip("no minio: `go install github.com/minio/minio@latest`, or name the program in $MINIO")
    folder: Path = tmp_path_factory.mktemp("minio")
    port = free_port()
    environment = os.environ | {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD}
    log = (folder / "log").open("wb")
    command = [program, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "data")]
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        make_bucket(port, folder / "log")
        yield port
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()


def make_bucket(port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            pafs.S3FileSystem(
                access_key=USER,
                secret_key=PASSWORD,
                endpoint_override=f"127.0.0.1:{port}",
                scheme="http",
                region="us-east-1",
                allow_bucket_creation=True,
            ).create_dir("bucket")
        except OSError as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"minio does not start: {log.read_text()}") from error
            time.sleep(0.5)
        else:
            return


def location(port: int, folder: str) -> str:
    options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    return f"s3://{USER}:{PASSWORD}@bucket/{folder}?{options}"


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_one_of_two_writers_wins_each_race(port: int, processes: bool) -> None:
    found = winners(location(port, f"races-{processes}"), processes=processes)
    assert {race: len(won) for race, won in found.items()} == dict.fromkeys(range(NUM_RACES), 1)


def test_locks_exclude_each_other(port: int) -> None:
    one, other = (Storage.at(location(port, "locks")) for _ in range(2))
    with one.shared_lock("lock"), other.shared_lock("lock"), pytest.raises(LockedError, match="is busy with"):
        other.exclusive_lock("lock").__enter__()
    with one.exclusive_lock("lock"), pytest.raises(LockedError, match="is busy with"):
        other.shared_lock("lock").__enter__()


def test_files_are_written_and_read_through_faults(port: int) -> None:
    with faulty_proxy(port) as proxy:
        storage = Storage.at(location(proxy.port, "faults"))
        proxy.share = 0.1
        for number in range(10):
            storage.create_if_absent(f"manifests/{number}", b"1" * 3000)
            assert storage.read_range(f"manifests/{number}", 5, 10) == b"1" * 10
        assert len(storage.list_files("manifests")) == 10
        storage.delete_tree("manifests")
        assert storage.list_files() == []
    assert proxy.injected
