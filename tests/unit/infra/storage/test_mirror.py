"""A copy of a store's folder: only changes are sent; the completeness mark is written last, removed first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.mirror import Mirror


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """A folder in the place of an object store: the mirror uses its methods alone."""
    return Storage.at(tmp_path / "store")


def files_of(storage: Storage) -> dict[str, bytes]:
    return {entry.path: storage.read_bytes(entry.path) for entry in storage.list_files()}


def age(storage: Storage) -> dict[str, int]:
    return {entry.path: entry.mtime_ns for entry in storage.list_files()}


def test_another_machine_gets_what_one_pushed_and_the_other_way_round(store: Storage, tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "run", tmp_path / "two" / "run"
    here, there = Storage.at(one), Storage.at(two)
    here.write_atomic("run.json", b"{}")
    here.write_atomic("checkpoints/1.npz", b"first")
    Mirror(store, one).push()
    assert files_of(store) == {"run.json": b"{}", "checkpoints/1.npz": b"first"}
    Mirror(store, two).pull()
    there.write_atomic("checkpoints/2.npz", b"second")
    there.delete("checkpoints/1.npz")
    Mirror(store, two).push()
    here.write_atomic("checkpoints/1b.npz", b"never uploaded")
    Mirror(store, one).pull()
    assert files_of(here) == files_of(store) == {"run.json": b"{}", "checkpoints/2.npz": b"second"}


def test_only_changed_files_move(store: Storage, tmp_path: Path) -> None:
    copy = Storage.at(tmp_path / "copy")
    for name in ("a", "b/c"):
        copy.write_atomic(name, name.encode())
    mirror = Mirror(store, tmp_path / "copy")
    mirror.push()
    before = age(store)
    copy.write_atomic("a", b"A")  # as long as before
    mirror.push()
    assert (age(store)["b/c"], age(store)["a"] > before["a"]) == (before["b/c"], True)
    before = age(copy)
    Mirror(store, tmp_path / "copy").pull()
    assert age(copy) == before
    os.truncate(tmp_path / "copy" / "a", 0)
    Mirror(store, tmp_path / "copy").pull()
    assert files_of(copy) == {"a": b"A", "b/c": b"b/c"}


def test_unwanted_files_stay_where_they_are(store: Storage, tmp_path: Path) -> None:
    store.write_atomic("figures", b"1")
    store.write_atomic("checkpoints/1", b"2")
    mirror = Mirror(store, tmp_path / "copy")
    mirror.pull(lambda path: not path.startswith("checkpoints/"))
    assert files_of(Storage.at(tmp_path / "copy")) == {"figures": b"1"}
    mirror.push()
    assert files_of(store) == {"figures": b"1", "checkpoints/1": b"2"}


def test_the_mark_is_uploaded_last_and_removed_first(
    store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Storage.at(tmp_path / "copy")
    mirror = Mirror(store, tmp_path / "copy")
    for name in ("a", "mark", "z"):
        copy.write_atomic(name, b"1")
    mirror.push(lambda path: (path == "mark", path), "mark")
    times = age(store)
    assert times["mark"] == max(times.values())
    copy.delete("mark")
    copy.delete("a")
    copy.write_atomic("z", b"22")

    def fail(path: str) -> None:
        raise OSError("the network is gone")

    monkeypatch.setattr(store, "atomic_writer", fail)
    with pytest.raises(OSError, match="the network is gone"):
        mirror.push(lambda path: (path == "mark", path), "mark")
    assert files_of(store) == {"a": b"1", "z": b"1"}


def test_a_damaged_note_costs_a_copy_of_all(store: Storage, tmp_path: Path) -> None:
    store.write_atomic("a", b"1")
    Mirror(store, tmp_path / "copy").pull()
    (tmp_path / ".copy.mirror.json").write_text("{")
    Mirror(store, tmp_path / "copy").pull()
    assert files_of(Storage.at(tmp_path / "copy")) == {"a": b"1"}
