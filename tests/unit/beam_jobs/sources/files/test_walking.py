"""The walk through a local folder: order, links, and what cannot be listed."""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import PATH_TOO_LONG, SPECIAL_FILE, UNLISTED_FOLDER
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.errors import StorageError
from tests.samples.images.photos import write


def walk(root: Path, *patterns: str) -> list[FoundFile]:
    return list(SourceFolder(str(root)).walk(IgnorePatterns(patterns)))


def test_files_come_in_the_order_of_whole_uris(tmp_path: Path) -> None:
    names = ["a.b", "a/z", "a-b/c", "a/b/c", "ab", "a/b.c", "Z", "é/x"]
    write(tmp_path, dict.fromkeys(names, b"x"))
    assert [file.uri for file in walk(tmp_path)] == sorted(names)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    write(tmp_path, {"real/a.jpg": b"abc"})
    (tmp_path / "file.jpg").symlink_to(tmp_path / "real/a.jpg")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "real/up").symlink_to(tmp_path)
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    os.mkfifo(tmp_path / "pipe")
    found = {file.uri: file for file in walk(tmp_path)}
    assert {"file.jpg", "folder/a.jpg", "real/a.jpg", "gone.jpg", "self", "pipe"} == set(found)
    assert found["file.jpg"].ref.size_bytes == 3
    assert found["gone.jpg"].fault is not None
    assert found["gone.jpg"].fault.reason == "broken_link"
    assert found["self"].fault is not None
    assert found["pipe"].fault is not None
    assert (found["pipe"].fault.reason, found["pipe"].fault.message) == (SPECIAL_FILE, "a pipe, not a file")


def test_what_an_ignored_folder_holds_is_ignored_with_it(tmp_path: Path) -> None:
    write(tmp_path, {".git/deep/config": b"", "a/b.jpg": b"", "a/skip/c/d.jpg": b""})
    found = {file.uri: file.ignored_by for file in walk(tmp_path, ".*", "a/skip")}
    assert found == {".git/deep/config": ".*", "a/b.jpg": None, "a/skip/c/d.jpg": "a/skip"}


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.EACCES, UNLISTED_FOLDER), (errno.ENAMETOOLONG, PATH_TOO_LONG)]
)
def test_a_folder_that_cannot_be_listed_is_a_row_of_its_class(
    number: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a/b.jpg": b"", "locked/c.jpg": b"", "locked-too.jpg": b""})
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("locked"):
            raise OSError(number, os.strerror(number))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = listed(tmp_path)
    assert labels(found) == {
        "a/b.jpg": ("a", None, None),
        "locked-too.jpg": (None, None, "no_class"),
        "locked/": ("locked", None, reason),
    }
    assert found.table["uri"].to_pylist() == sorted(labels(found))
    (row,) = (row for row in found.table.to_pylist() if row["uri"] == "locked/")
    assert (row["status"], row["message"]) == (
        Status.QUARANTINED,
        f"the folder cannot be listed: {os.strerror(number)}",
    )
    assert labels(listed(tmp_path, filter={"ignore": ["locked"]}))["locked/"][2] == "ignored"


def test_a_source_that_cannot_be_listed_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        walk(tmp_path)


def test_a_path_that_is_too_long_costs_its_own_row(tmp_path: Path) -> None:
    write(tmp_path, {"cat/a.jpg": b"x", "dog/b.jpg": b"x"})
    name = "n" * 250
    # Each step is short; the whole path is longer than the system takes.
    descriptor = os.open(tmp_path / "dog", os.O_RDONLY)
    for _ in range(17):
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("deep.jpg", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
    found = labels(listed(tmp_path))
    (lost,) = (uri for uri, (_, _, reason) in found.items() if reason == PATH_TOO_LONG)
    assert found.pop(lost) == ("dog", None, PATH_TOO_LONG)
    assert found == {"cat/a.jpg": ("cat", None, None), "dog/b.jpg": ("dog", None, None)}


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_links_between_class_folders_list_each_folder_once_a_class(prefix: str, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(9)]
    write(tmp_path, {f"{prefix}{name}/{name}.jpg": b"x" for name in names})
    for name in names:
        for other in names:
            if other != name:
                (tmp_path / prefix / name / f"link_{other}").symlink_to(tmp_path / prefix / other)
    found = listed(tmp_path)
    assert found.table.num_rows == 81, "each of 9 classes has the files of all 9 folders"
    for name in names:
        files = [uri for uri, (label, _, _) in labels(found).items() if label == name]
        assert len({uri.rpartition("/")[2] for uri in files}) == len(files) == 9
    warnings = [warning for warning in found.warnings if "leads to the same folder" in warning]
    assert len(warnings) == 1
    assert f"'{prefix}c0/link_c1/link_c2/link_c3'" in warnings[0] or "c0/link_c1" in warnings[0]


def test_classes_may_share_a_folder(tmp_path: Path) -> None:
    write(tmp_path, {"shared/x.jpg": b"x", "source/cat/a.jpg": b"x", "source/dog/b.jpg": b"x"})
    for name in ("cat", "dog"):
        (tmp_path / "source" / name / "more").symlink_to(tmp_path / "shared")
    found = listed(tmp_path / "source")
    assert set(labels(found)) == {"cat/a.jpg", "cat/more/x.jpg", "dog/b.jpg", "dog/more/x.jpg"}
    assert found.warnings == []


def test_pipes_and_sockets_have_rows(tmp_path: Path) -> None:
    write(tmp_path, {"cat/a.jpg": b"x"})
    os.mkfifo(tmp_path / "cat/pipe.jpg")
    with socket.socket(socket.AF_UNIX) as listener:
        with contextlib.chdir(tmp_path / "cat"):  # the path of a socket must be short
            listener.bind("socket.jpg")
        found = listed(tmp_path)
    rows = {row["uri"]: row for row in found.table.to_pylist()}
    for uri in ("cat/pipe.jpg", "cat/socket.jpg"):
        assert (rows[uri]["status"], rows[uri]["reason"]) == (Status.FILTERED, SPECIAL_FILE)
    assert found.to_read()["uri"].to_pylist() == ["cat/a.jpg"]


def test_folders_may_be_deeper_than_python_recurses(tmp_path: Path) -> None:
    uri = "d/" * 300 + "x.jpg"
    write(tmp_path, {uri: b"x"})
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        assert [file.uri for file in walk(tmp_path)] == [uri]
    finally:
        sys.setrecursionlimit(limit)


def test_a_link_into_a_closed_folder_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        """The entry that os.scandir gives for such a link (faked: the superuser may enter any folder)."""

        name, path = "link", str(tmp_path / "link")

        def is_dir(self) -> bool:
            raise PermissionError(13, "Permission denied")

        stat = is_dir

    @contextlib.contextmanager
    def scandir(_: str) -> Iterator[list[Closed]]:
        yield [Closed()]

    monkeypatch.setattr(os, "scandir", scandir)
    (found,) = walk(tmp_path)
    assert found.fault is not None
    assert (found.uri, found.fault.reason) == ("link", "unreadable")


def listed(root: Path, **config: Any) -> Listing:
    return list_inputs(SourceFolder(str(root)), PrepareConfig.model_validate(config))


def labels(listing: Listing) -> dict[str, tuple[str | None, str | None, str | None]]:
    columns = [listing.table[name].to_pylist() for name in ("uri", "label", "split", "reason")]
    return {uri: (label, split, reason) for uri, label, split, reason in zip(*columns, strict=True)}
