"""Datasets in ``az://``, on Microsoft's server program Azurite, where it is installed."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shardmill.infra.errors import StorageError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.preparing.publishers import check_publishers
from tests.samples.stores.azurite import ACCOUNT, KEY, azure_location, azurite, put_blob
from tests.samples.stores.faulty_proxy import faulty_proxy
from tests.samples.stores.odd_keys import check_odd_keys
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
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        with azurite(tmp_path_factory.mktemp("azurite")) as running:
            yield running


def test_each_key_is_read_or_costs_its_row(port: int) -> None:
    """Clients write no name with a part . or .., and Azurite cannot list a control character."""
    left_out = ("dog/./a.jpg", "dog/../b.jpg", "dog/.", "dog/c\x01.jpg")
    check_odd_keys(azure_location(port, "odd"), partial(put_blob, port), left_out)


def test_a_dataset_lives_in_the_store_as_on_a_disk(port: int, tmp_path: Path) -> None:
    check_life(azure_location(port, "life"), tmp_path)


def test_two_prepares_at_once_give_two_versions(port: int, tmp_path: Path) -> None:
    check_two_prepares(azure_location(port, "two"), tmp_path)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_one_of_two_writers_wins_each_race(port: int, processes: bool) -> None:
    check_races(azure_location(port, f"races-{processes}"), processes=processes)


def test_versions_published_at_the_same_moments_are_all_kept(port: int, tmp_path: Path) -> None:
    check_publishers(azure_location(port, "publishers"), tmp_path)


def test_locks_exclude_each_other(port: int) -> None:
    check_locks(azure_location(port, "locks"))


def test_a_bucket_that_is_not_there_is_named(port: int) -> None:
    check_missing_bucket(azure_location(port, "nothing"))


def test_a_file_is_not_seen_before_it_is_whole(port: int) -> None:
    """Arrow's own writer shows an empty blob at once."""
    storage = Storage.at(azure_location(port, "whole"))
    data = os.urandom(12 << 20)  # in parts
    with storage.atomic_writer("large") as stream:
        stream.write(data)
        assert not storage.exists("large")
    assert storage.read_bytes("large") == data
    with pytest.raises(ZeroDivisionError), storage.atomic_writer("never"):
        _ = 1 / 0
    assert [entry.path for entry in storage.list_files()] == ["large"]


def test_files_are_written_and_read_through_faults(port: int) -> None:
    with faulty_proxy(port) as proxy:
        storage = Storage.at(azure_location(proxy.port, "faults"))
        proxy.share = 0.1
        for number in range(10):
            storage.create_if_absent(f"manifests/{number}", b"1" * 3000)
            storage.write_atomic(f"data/{number}", b"2" * 3000)
            assert storage.read_range(f"manifests/{number}", 5, 10) == b"1" * 10
        assert len(storage.list_files("manifests")) == len(storage.list_files("data")) == 10
        storage.delete_tree("manifests")
        storage.delete_tree("data")
        assert storage.list_files() == []
    assert proxy.injected


def test_a_wrong_key_is_refused_in_words_that_do_not_show_it(port: int) -> None:
    wrong = "bm90LXRoZS1rZXk="
    place = f"{ACCOUNT}:{urllib.parse.quote(wrong, safe='')}@bucket/f"
    storage = Storage.at(f"az://{place}?endpoint_override=127.0.0.1:{port}&scheme=http")
    for work in (
        lambda: storage.read_bytes("a"),
        lambda: storage.write_atomic("a", b"1"),
        lambda: storage.create_if_absent("a", b"1"),
    ):
        with pytest.raises(StorageError, match=r"cannot (read|write) az://bucket/f/a: .*403") as caught:
            work()
        assert wrong not in str(caught.value)
