"""Conditional writes: of several writers one creates a file, on object stores too."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardmill.infra.errors import PublishConflict, StorageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.objects.conditional import Bucket, ConditionalObjects, ObjectChanged
from tests.samples.preparing.races import NUM_RACES, file_of, winners
from tests.samples.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.samples.stores.object_store import KEY, SECRET, ObjectStore

CREDENTIALS = f"{KEY}:{SECRET}"


@pytest.fixture
def proxy(store: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(store.port) as running:
        yield running


def through(proxy: FaultyProxy, folder: str) -> str:
    """The folder of the bucket, by way of the proxy."""
    return (
        f"s3://{CREDENTIALS}@storage/{folder}?endpoint_override=127.0.0.1:{proxy.port}"
        "&scheme=http&region=us-east-1"
    )


def objects_at(location: str) -> ConditionalObjects:
    return Bucket(location, None).objects("checked", "s3://storage/checked")


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_one_of_two_writers_wins_each_race(store: ObjectStore, processes: bool) -> None:
    location = store.location(f"races-{processes}", credentials=f"{CREDENTIALS}@")
    found = winners(location, processes=processes)
    assert {race: len(won) for race, won in found.items()} == dict.fromkeys(range(NUM_RACES), 1)
    files = Storage.at(location).list_files()
    assert [entry.path for entry in files] == [file_of(race) for race in range(NUM_RACES)]


def test_one_of_two_processes_wins_each_race_for_a_local_file(tmp_path: Path) -> None:
    found = winners(str(tmp_path), processes=True)
    assert {race: len(won) for race, won in found.items()} == dict.fromkeys(range(NUM_RACES), 1)


def test_a_bucket_that_is_not_there_is_named(store: ObjectStore) -> None:
    there = store.location("nothing", credentials=f"{CREDENTIALS}@")
    assert Storage.at(there).list_folders() == []
    missing = Storage.at(there.replace("storage/", "misspelt/"))
    for listed in (missing.list_folders, missing.list_files):
        with pytest.raises(StorageError, match="there is no bucket 'misspelt' for s3://misspelt/nothing"):
            listed()


def test_an_object_is_replaced_only_if_it_is_unchanged(store: ObjectStore) -> None:
    objects = objects_at(store.location(credentials=f"{CREDENTIALS}@"))
    first = objects.create("a/b", b"1")
    with pytest.raises(FileExistsError):
        objects.create("a/b", b"1")
    second = objects.replace("a/b", b"2", first)
    with pytest.raises(ObjectChanged):
        objects.replace("a/b", b"3", first)
    found = objects.read("a/b")
    assert found is not None
    assert (found.data, found.tag) == (b"2", second)
    assert objects.read("absent") is None
    with pytest.raises(ObjectChanged):
        objects.replace("absent", b"3", second)


def test_a_writer_whose_answer_was_lost_knows_that_it_won(store: ObjectStore, proxy: FaultyProxy) -> None:
    storage = Storage.at(through(proxy, "lost"))
    storage.create_if_absent("before", b"")
    proxy.methods, proxy.kinds, proxy.share = frozenset({"PUT"}), ("lost",), 1.0
    proxy.most = 1
    storage.create_if_absent("manifest", b"ours")
    assert proxy.injected["lost"] == 1
    assert storage.read_bytes("manifest") == b"ours"
    proxy.most = 2
    with pytest.raises(PublishConflict):
        storage.create_if_absent("manifest", b"of another writer")
    assert storage.read_bytes("manifest") == b"ours"


def ignore_conditions(headers: http.client.HTTPMessage) -> None:
    for name in ("If-None-Match", "If-Match"):
        del headers[name]


def ignore_if_match(headers: http.client.HTTPMessage) -> None:
    del headers["If-Match"]


@pytest.mark.parametrize("alter", [ignore_conditions, ignore_if_match])
def test_a_store_that_ignores_conditions_is_refused(
    store: ObjectStore, proxy: FaultyProxy, alter: Callable[[http.client.HTTPMessage], None]
) -> None:
    proxy.alter_request = alter
    storage = Storage.at(through(proxy, "refused"))
    with pytest.raises(StorageError, match="does not support conditional writes") as caught:
        storage.create_if_absent("manifests/000001.json", b"{}")
    assert "s3://storage/refused" in str(caught.value)
    assert SECRET not in str(caught.value)
    with (
        pytest.raises(StorageError, match="does not support conditional writes"),
        storage.shared_lock("lock"),
    ):
        pass
    assert storage.list_files() == []


def test_a_store_that_refuses_conditions_is_refused(store: ObjectStore, proxy: FaultyProxy) -> None:
    proxy.methods, proxy.kinds, proxy.share = frozenset({"PUT"}), ("501",), 1.0
    with pytest.raises(StorageError, match="does not support conditional writes"):
        Storage.at(through(proxy, "refused")).create_if_absent("manifests/000001.json", b"{}")


def test_the_check_leaves_nothing(store: ObjectStore) -> None:
    storage = Storage.at(store.location("clean", credentials=f"{CREDENTIALS}@"))
    storage.create_if_absent("only", b"1")
    assert store.all_keys("clean") == ["clean/only"]


def test_credentials_of_a_profile_are_found(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    profile = tmp_path / "credentials"
    profile.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    storage = Storage.at(store.location("profile"))
    storage.create_if_absent("file", b"1")
    assert storage.read_bytes("file") == b"1"


def test_a_bucket_that_is_not_there_is_an_error(store: ObjectStore) -> None:
    location = store.location("folder", credentials=f"{CREDENTIALS}@").replace("storage/", "absent/", 1)
    with pytest.raises(StorageError, match=r"cannot write s3://absent/folder/file: .*not found"):
        Storage.at(location).create_if_absent("file", b"1")


def test_storage_without_known_conditional_writes_is_refused() -> None:
    with pytest.raises(StorageError, match="writing to mock:// is not supported"):
        Storage.at("mock://bucket/folder").create_if_absent("file", b"1")
