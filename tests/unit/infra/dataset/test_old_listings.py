"""Listings of an object store that are a few seconds old: no version is overlooked, and no file is lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs as pafs
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.maintenance.garbage import Garbage, remove_files
from shardmill.infra.storage.filesystem import FileEntry, Storage


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    """A folder that looks like an object store."""
    return Storage(pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), "", "s3://bucket/root")


@pytest.mark.parametrize("listed", [[], [1], [1, 2], [2, 3, 5]])
def test_newer_versions_than_the_listing_has_are_found(
    store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: list[int]
) -> None:
    stored = [1, 2, 3] if 5 not in listed else [2, 3, 5]
    (tmp_path / "d/manifests").mkdir(parents=True)
    for number in stored:
        (tmp_path / f"d/manifests/{number:06d}.json").touch()
    old = [FileEntry(f"d/manifests/{number:06d}.json", 0, 0) for number in listed]
    monkeypatch.setattr(Storage, "list_files", lambda *_, **__: old)
    catalog = Catalog(tmp_path)
    catalog.storage = store
    assert catalog.versions("d") == stored
    assert catalog.next_version("d") == stored[-1] + 1


def test_a_folder_with_needed_files_stays_even_if_it_is_listed_as_empty(
    store: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("data/one/gone", "data/one/needed", "data/two/gone"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    files = [FileEntry("data/one/gone", 0, 0), FileEntry("data/two/gone", 0, 0)]
    monkeypatch.setattr(Storage, "list_files", lambda *_, **__: [])
    remove_files(store, Garbage("d", [], [1], files, [], frozenset({"data/one/needed"})))
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "data",
        "data/one",
        "data/one/needed",
    ]
