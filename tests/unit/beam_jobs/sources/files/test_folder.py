"""Reading of single files, and of sources by URI."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns, SourceFault
from shardmill.infra.errors import NotFoundError, StorageError
from tests.samples.images.photos import write


def test_a_source_that_cannot_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    source = SourceFolder(str(tmp_path))
    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(NotFoundError, match="not to be entered: Permission denied"):
        source.walk(IgnorePatterns(()))


def reference(path: Path, uri: str) -> FileRef:
    found = path.stat()
    return FileRef(uri, found.st_size, found.st_mtime_ns)


def test_reading_gives_the_whole_file(tmp_path: Path) -> None:
    write(tmp_path, {"a/b.jpg": bytes(range(256)) * 40, "a/empty": b""})
    source = pickle.loads(pickle.dumps(SourceFolder(str(tmp_path))))
    assert source.read(reference(tmp_path / "a/b.jpg", "a/b.jpg")) == bytes(range(256)) * 40
    assert source.read(reference(tmp_path / "a/empty", "a/empty")) == b""


def _grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def _shrink(path: Path) -> None:
    path.write_bytes(b"")


def _touch(path: Path) -> None:
    os.utime(path, ns=(5, 5))


def _become_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_grow, "changed"),
        (_shrink, "changed"),
        (_touch, "changed"),
        (_become_pipe, "changed"),
        (_become_folder, "unreadable"),
        (Path.unlink, "vanished"),
    ],
)
def test_a_file_that_is_no_longer_what_was_listed(change: Any, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path, {"a.jpg": b"content"}) / "a.jpg"
    file = reference(path, "a.jpg")
    change(path)
    messages = set()
    for _ in range(2):
        with pytest.raises(SourceFault) as caught:
            SourceFolder(str(tmp_path)).read(file)
        assert caught.value.reason == reason
        messages.add(caught.value.message)
    assert len(messages) == 1, "the row must be the same in every run"


@pytest.mark.parametrize(
    ("number", "expected"), [(13, SourceFault), (5, SourceFault), (24, StorageError), (12, StorageError)]
)
def test_the_file_is_at_fault_or_the_machine(
    number: int, expected: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    path = write(tmp_path, {"a.jpg": b"content"}) / "a.jpg"
    file = reference(path, "a.jpg")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(expected):
        SourceFolder(str(tmp_path)).read(file)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(SourceFault) as caught:
        SourceFolder(str(tmp_path)).read(FileRef("film.mp4", 1 << 40, 0))
    assert caught.value.reason == "too_large"


def test_the_budget_of_bytes_is_the_configured_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(bytes(1000))
    file = reference(path, "a.jpg")
    allowed, refused = (
        pickle.loads(pickle.dumps(SourceFolder(str(tmp_path), max_bytes=most))) for most in (1000, 999)
    )
    assert len(allowed.read(file)) == 1000
    with pytest.raises(SourceFault, match="1,000 bytes, at most 999 are allowed") as caught:
        refused.read(file)
    assert caught.value.reason == "too_large"


def test_a_source_by_uri_is_read_through_the_storage(tmp_path: Path) -> None:
    write(tmp_path, {"a/x.jpg": b"abc", "a/.hidden/y.jpg": b"", "b/z.jpg": b"12345"})
    source = SourceFolder(f"file://{tmp_path}")
    found = list(source.walk(IgnorePatterns((".*",))))
    assert [(file.uri, file.ref.size_bytes, file.ignored_by) for file in found] == [
        ("a/.hidden/y.jpg", 0, ".*"),
        ("a/x.jpg", 3, None),
        ("b/z.jpg", 5, None),
    ]
    assert source.read(FileRef("b/z.jpg", 5, 0)) == b"12345"
    with pytest.raises(SourceFault, match="gone"):
        source.read(FileRef("b/no.jpg", 5, 0))
    with pytest.raises(SourceFault, match="no longer"):
        source.read(FileRef("b/z.jpg", 4, 0))
