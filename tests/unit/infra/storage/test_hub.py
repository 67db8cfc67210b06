"""Datasets of the Hub as folders, read through the real client from a server on this machine."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator

import pytest

from shardmill.infra.errors import NotFoundError, StorageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.objects.hub import HubPlace, at_commit, hub_place, without_revision
from tests.samples.stores.hub import TOKEN, Hub, serving

PETS = "hf://datasets/me/pets"
BIG = os.urandom((1 << 20) + 5)
FILES = {
    "README.md": b"pets",
    "cats/a b.jpg": BIG,
    "hünde/ü #?%41@.jpg": b"xyz",
    "empty.jpg": b"",
}


@pytest.fixture(scope="module")
def served() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


@pytest.fixture
def hub(served: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    served.add("me/pets", FILES)
    served.faults.clear()
    served.requests.clear()
    served.page = 1000
    return served


def test_files_and_folders_are_listed_and_read(hub: Hub) -> None:
    storage = pickle.loads(pickle.dumps(Storage.at(PETS)))
    assert [(file.path, file.size_bytes) for file in storage.list_files()] == sorted(
        (path, len(data)) for path, data in FILES.items()
    )
    assert storage.list_folders() == ["cats", "hünde"]
    assert [file.path for file in storage.child("cats").list_files()] == ["a b.jpg"]
    assert {path: storage.read_bytes(path) for path in FILES} == FILES
    assert storage.read_range("cats/a b.jpg", 1 << 20, 9) == BIG[1 << 20 :]
    assert storage.exists("cats")
    assert not storage.exists("dogs")
    with pytest.raises(NotFoundError, match="no such file: hf://datasets/me/pets/dogs"):
        storage.read_bytes("dogs")


def test_a_short_file_costs_one_request(hub: Hub) -> None:
    Storage.at(PETS).read_bytes("README.md")
    assert hub.requests == ["GET /datasets/me/pets/resolve/main/README.md"]


def test_a_long_listing_comes_in_pages(hub: Hub) -> None:
    hub.add("me/many", {f"images/{number:05d}.txt": b"" for number in range(10_000)})
    assert len(Storage.at("hf://datasets/me/many").list_files()) == 10_000
    assert len(hub.requests) == 11  # with the folder of the files


def test_a_file_that_changes_has_another_time_of_change(hub: Hub) -> None:
    before = Storage.at(PETS).entry("README.md")
    hub.repositories["me/pets"].commit({**FILES, "README.md": b"dogs"})
    after = Storage.at(PETS).entry("README.md")
    assert after.size_bytes == before.size_bytes
    assert after.mtime_ns != before.mtime_ns


def test_a_revision_becomes_its_commit(hub: Hub) -> None:
    first = hub.repositories["me/pets"].refs["main"]
    fixed = at_commit(f"{PETS}/cats")
    hub.repositories["me/pets"].commit({"README.md": b"gone"}, "refs/convert/parquet")
    hub.repositories["me/pets"].commit({"README.md": b"gone"})
    assert fixed == f"{PETS}@{first}/cats"
    assert Storage.at(fixed).read_bytes("a b.jpg") == BIG
    assert at_commit(fixed) == fixed
    assert without_revision(fixed) == f"{PETS}/cats"
    assert without_revision(f"{PETS}@main/a?.parquet#row=07") == f"{PETS}/a?.parquet#row=07"
    converted = Storage.at(f"{PETS}@refs/convert/parquet")
    assert converted.read_bytes("README.md") == b"gone"
    assert at_commit("s3://bucket/pets@main") == "s3://bucket/pets@main"


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("hf://datasets/me/pets", HubPlace("me/pets", None, "")),
        ("hf://datasets/me/pets@v1.0/a/b", HubPlace("me/pets", "v1.0", "a/b")),
        ("hf://datasets/me/pets@refs/pr/3/a@b", HubPlace("me/pets", "refs/pr/3", "a@b")),
        ("hf://datasets/me/pets@refs%2Fpr%2F3", HubPlace("me/pets", "refs/pr/3", "")),
        ("hf://datasets/me/pets/a@b/", HubPlace("me/pets", None, "a@b")),
    ],
)
def test_a_location_names_repository_revision_and_path(location: str, place: HubPlace) -> None:
    assert hub_place(location) == place
    assert hub_place(place.uri) == place


@pytest.mark.parametrize(
    "location",
    ["hf://me/pets", "hf://datasets/pets", "hf://datasets/me/pets@", "hf://datasets/me/pets?token=hf_s3cret",
     "hf://hf_s3cret@datasets/me/pets", "hf://buckets/me/pets", "hf://datasets/me/pets@a@b"],
)  # fmt: skip
def test_other_places_of_the_hub_are_refused_without_their_secrets(location: str) -> None:
    with pytest.raises(StorageError, match=r"write hf://datasets/OWNER/NAME") as refused:
        Storage.at(location)
    assert "hf_s3cret" not in str(refused.value)


def read(location: str = PETS) -> bytes:
    return Storage.at(location).read_bytes("README.md")


def test_refusals_of_the_hub_say_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = hub.repositories["me/pets"]
    with pytest.raises(StorageError, match=r"there is no hf://datasets/me/dogs at .*check its name"):
        read("hf://datasets/me/dogs")
    with pytest.raises(StorageError, match=r"has no revision v9 \(name a branch"):
        read(f"{PETS}@v9")
    repository.is_gated = True
    with pytest.raises(StorageError, match=r"is gated.*accept its terms at .*/datasets/me/pets"):
        read()
    repository.is_private = True
    with pytest.raises(StorageError, match=r"or it is private .*set HF_TOKEN"):
        read()
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    with pytest.raises(StorageError, match=r"refuses the token .*set HF_TOKEN to a valid token") as refused:
        read()
    assert "hf_s3cret" not in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert read() == b"pets"


def test_a_failure_that_stays_is_named(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr("shardmill.infra.storage.objects.retries.ATTEMPTS", 1)
    hub.faults += [("revision/main", 503, {})]
    with pytest.raises(StorageError, match=r"cannot read .*HTTP status 503.*HF_ENDPOINT"):
        at_commit(f"{PETS}@main")


def test_a_failure_that_passes_is_tried_again(hub: Hub) -> None:
    hub.faults += [("tree", 429, {"Retry-After": "0"}), ("paths-info", 503, {})]
    assert len(Storage.at(PETS).list_files()) == len(FILES)
    assert Storage.at(PETS).size("README.md") == 4
    assert hub.faults == []


@pytest.mark.parametrize(
    "write",
    [
        lambda storage: storage.write_atomic("a", b""),
        lambda storage: storage.create_if_absent("a", b""),
        lambda storage: storage.delete("README.md"),
        lambda storage: storage.delete_tree("cats"),
        lambda storage: storage.exclusive_lock("lock").__enter__(),
    ],
)
def test_single_files_are_not_written(hub: Hub, write: Callable[[Storage], None]) -> None:
    with pytest.raises(StorageError, match=r"is read only.*shardmill push"):
        write(Storage.at(PETS))
    assert hub.requests == []
