"""Publishing, locking and a dataset's life on a real MinIO server, where the program `minio` is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmill.infra.storage.filesystem import Storage
from tests.samples.preparing.publishers import check_publishers
from tests.samples.stores.faulty_proxy import faulty_proxy
from tests.samples.stores.minio import minio, minio_location
from tests.samples.stores.stored_life import (
    check_life,
    check_locks,
    check_missing_bucket,
    check_races,
    check_two_prepares,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with minio(tmp_path_factory.mktemp("minio")) as running:
        yield running


def test_a_dataset_lives_in_the_store_as_on_a_disk(port: int, tmp_path: Path) -> None:
    check_life(minio_location(port, "life"), tmp_path)


def test_two_prepares_at_once_give_two_versions(port: int, tmp_path: Path) -> None:
    check_two_prepares(minio_location(port, "two"), tmp_path)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_one_of_two_writers_wins_each_race(port: int, processes: bool) -> None:
    check_races(minio_location(port, f"races-{processes}"), processes=processes)


@pytest.mark.parametrize("share_lost", [0.0, 0.2], ids=["", "answers lost"])
def test_versions_published_at_the_same_moments_are_all_kept(
    port: int, share_lost: float, tmp_path: Path
) -> None:
    """Of a share of the writes, the answers are lost: the writer learns by itself whether it won."""
    with faulty_proxy(port) as proxy:
        proxy.share, proxy.kinds, proxy.methods = share_lost, ("lost",), frozenset({"PUT", "POST"})
        check_publishers(minio_location(proxy.port, f"publishers-{share_lost}"), tmp_path)
    assert bool(proxy.injected) == bool(share_lost)


def test_locks_exclude_each_other(port: int) -> None:
    check_locks(minio_location(port, "locks"))


def test_a_bucket_that_is_not_there_is_named(port: int) -> None:
    check_missing_bucket(minio_location(port, "nothing"))


def test_files_are_written_and_read_through_faults(port: int) -> None:
    with faulty_proxy(port) as proxy:
        storage = Storage.at(minio_location(proxy.port, "faults"))
        proxy.share = 0.1
        for number in range(10):
            storage.create_if_absent(f"manifests/{number}", b"1" * 3000)
            assert storage.read_range(f"manifests/{number}", 5, 10) == b"1" * 10
        assert len(storage.list_files("manifests")) == 10
        storage.delete_tree("manifests")
        assert storage.list_files() == []
    assert proxy.injected
