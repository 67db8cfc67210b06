"""Sources: names, ignore patterns, walking, reading, and the two layouts of an image folder."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.config import DEFAULT_IGNORE, PrepareConfig
from beam_jobs.sources import folder as folder_module
from beam_jobs.sources import list_inputs
from beam_jobs.sources.folder import FoundFile, SourceFault, SourceFolder
from beam_jobs.sources.ignore import IgnorePatterns
from beam_jobs.sources.listing import LISTING_SCHEMA, Listing
from infra.errors import ConfigError, NotFoundError, StorageError, UsageError
from tests.samples.photos import write

# -- ignore patterns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "pattern"),
    [
        ("a/.DS_Store", ".*"),
        ("a/NOTES.TXT", "*.txt"),
        ("README", "README"),
        ("a/photo.jpg", None),
        ("a/readme.jpg.png", None),
        ("Thumbs.db", "Thumbs.db"),
    ],
)
def test_default_patterns(uri: str, pattern: str | None) -> None:
    assert IgnorePatterns(DEFAULT_IGNORE).match(uri.rpartition("/")[2], uri) == pattern


def test_a_pattern_with_a_slash_is_of_the_path() -> None:
    ignore = IgnorePatterns(("train/*/bad*", "x.jpg"))
    assert ignore.match("bad1.jpg", "train/cat/bad1.jpg") == "train/*/bad*"
    assert ignore.match("bad1.jpg", "test/cat/bad1.jpg") is None
    assert ignore.match("x.jpg", "test/cat/x.jpg") == "x.jpg"
    assert IgnorePatterns(()).match("a", "a") is None


# -- walking and reading -------------------------------------------------------------------------------


def walk(root: Path, *patterns: str) -> list[FoundFile]:
    return list(SourceFolder(str(root)).files(IgnorePatterns(patterns)))


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
    assert {"file.jpg", "folder/a.jpg", "real/a.jpg", "gone.jpg", "self"} == set(found)
    assert found["file.jpg"].size_bytes == 3
    assert found["gone.jpg"].fault is not None
    assert found["gone.jpg"].fault.reason == "broken_link"
    assert found["self"].fault is not None


def test_what_an_ignored_folder_holds_is_ignored_with_it(tmp_path: Path) -> None:
    write(tmp_path, {".git/deep/config": b"", "a/b.jpg": b"", "a/skip/c/d.jpg": b""})
    found = {file.uri: file.ignored_by for file in walk(tmp_path, ".*", "a/skip")}
    assert found == {".git/deep/config": ".*", "a/b.jpg": None, "a/skip/c/d.jpg": "a/skip"}


def test_an_unlisted_folder_is_an_error_unless_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a/b.jpg": b"", "locked/c.jpg": b""})
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(folder_module.os, "scandir", refuse)
    with pytest.raises(StorageError, match="locked: Permission denied"):
        walk(tmp_path)
    assert [file.uri for file in walk(tmp_path, "locked")] == ["a/b.jpg"]


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
        """What os.scandir gives of such a link; the superuser, as whom tests may run, enters any folder."""

        name, path = "link", str(tmp_path / "link")

        def is_dir(self) -> bool:
            raise PermissionError(13, "Permission denied")

        stat = is_dir

    @contextlib.contextmanager
    def scandir(_: str) -> Iterator[list[Closed]]:
        yield [Closed()]

    monkeypatch.setattr(folder_module.os, "scandir", scandir)
    (found,) = walk(tmp_path)
    assert found.fault is not None
    assert (found.uri, found.fault.reason) == ("link", "unreadable")


def test_a_source_that_cannot_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    source = SourceFolder(str(tmp_path))
    monkeypatch.setattr(folder_module.Path, "stat", refuse)
    with pytest.raises(NotFoundError, match="not to be entered: Permission denied"):
        source.files(IgnorePatterns(()))


def reference(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def test_reading_gives_the_whole_file(tmp_path: Path) -> None:
    write(tmp_path, {"a/b.jpg": bytes(range(256)) * 40, "a/empty": b""})
    source = pickle.loads(pickle.dumps(SourceFolder(str(tmp_path))))
    assert source.read("a/b.jpg", *reference(tmp_path / "a/b.jpg")) == bytes(range(256)) * 40
    assert source.read("a/empty", *reference(tmp_path / "a/empty")) == b""


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
    listed = reference(path)
    change(path)
    messages = set()
    for _ in range(2):
        with pytest.raises(SourceFault) as caught:
            SourceFolder(str(tmp_path)).read("a.jpg", *listed)
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
    listed = reference(path)
    monkeypatch.setattr(folder_module.os, "open", refuse)
    with pytest.raises(expected):
        SourceFolder(str(tmp_path)).read("a.jpg", *listed)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(SourceFault) as caught:
        SourceFolder(str(tmp_path)).read("film.mp4", 1 << 40, 0)
    assert caught.value.reason == "too_large"


def test_the_budget_of_bytes_is_the_configured_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(bytes(1000))
    listed = (1000, path.stat().st_mtime_ns)
    allowed, refused = (
        pickle.loads(pickle.dumps(SourceFolder(str(tmp_path), max_bytes=most))) for most in (1000, 999)
    )
    assert len(allowed.read("a.jpg", *listed)) == 1000
    with pytest.raises(SourceFault, match="1,000 bytes, at most 999 are allowed") as caught:
        refused.read("a.jpg", *listed)
    assert caught.value.reason == "too_large"


def test_a_source_by_uri_is_read_through_the_storage(tmp_path: Path) -> None:
    write(tmp_path, {"a/x.jpg": b"abc", "a/.hidden/y.jpg": b"", "b/z.jpg": b"12345"})
    source = SourceFolder(f"file://{tmp_path}")
    found = list(source.files(IgnorePatterns((".*",))))
    assert [(file.uri, file.size_bytes, file.ignored_by) for file in found] == [
        ("a/.hidden/y.jpg", 0, ".*"),
        ("a/x.jpg", 3, None),
        ("b/z.jpg", 5, None),
    ]
    assert source.read("b/z.jpg", 5, 0) == b"12345"
    with pytest.raises(SourceFault, match="gone"):
        source.read("b/no.jpg", 5, 0)
    with pytest.raises(SourceFault, match="no longer"):
        source.read("b/z.jpg", 4, 0)


# -- the image folder ----------------------------------------------------------------------------------


def listed(root: Path, **config: Any) -> Listing:
    return list_inputs(SourceFolder(str(root)), PrepareConfig.model_validate(config))


def labels(listing: Listing) -> dict[str, tuple[str | None, str | None, str | None]]:
    columns = [listing.table[name].to_pylist() for name in ("uri", "label", "split", "reason")]
    return {uri: (label, split, reason) for uri, label, split, reason in zip(*columns, strict=True)}


def test_classes(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(["cat/1.jpg", "cat/deep/er/2.jpg", "dog/3.jpg", "4.jpg", "a.txt"], b"x"))
    listing = listed(tmp_path)
    assert listing.table.schema == LISTING_SCHEMA
    assert labels(listing) == {
        "4.jpg": (None, None, "no_class"),
        "a.txt": (None, None, "ignored"),
        "cat/1.jpg": ("cat", None, None),
        "cat/deep/er/2.jpg": ("cat", None, None),
        "dog/3.jpg": ("dog", None, None),
    }
    assert listing.to_read()["uri"].to_pylist() == ["cat/1.jpg", "cat/deep/er/2.jpg", "dog/3.jpg"]
    assert listing.warnings == []


def test_splits(tmp_path: Path) -> None:
    names = ["Train/cat/1.jpg", "val/cat/deep/2.jpg", "test/dog/3.jpg", "test/4.jpg", "LICENSE", "docs/a.txt"]
    write(tmp_path, dict.fromkeys(names, b"x"))
    assert labels(listed(tmp_path)) == {
        "LICENSE": (None, None, "ignored"),
        "Train/cat/1.jpg": ("cat", "train", None),
        "docs/a.txt": (None, None, "ignored"),
        "test/4.jpg": (None, "test", "no_class"),
        "test/dog/3.jpg": ("dog", "test", None),
        "val/cat/deep/2.jpg": ("cat", "validation", None),
    }


def test_split_names_as_classes(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(["train/1.jpg", "test/2.jpg"], b"x"))
    assert labels(listed(tmp_path, source={"layout": "classes"})) == {
        "train/1.jpg": ("train", None, None),
        "test/2.jpg": ("test", None, None),
    }


def test_the_class_filter(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(["cat/1.jpg", "dog/2.jpg"], b"x"))
    found = labels(listed(tmp_path, filter={"classes": ["dog"]}))
    assert found == {"cat/1.jpg": ("cat", None, "class"), "dog/2.jpg": ("dog", None, None)}
    with pytest.raises(ConfigError, match="did you mean 'dog'"):
        listed(tmp_path, filter={"classes": ["dogs"]})


@pytest.mark.parametrize(
    ("files", "config", "error", "says"),
    [
        ([], {}, NotFoundError, "holds no file"),
        (["a/notes.txt"], {}, NotFoundError, "only 1 file that filter.ignore names"),
        (["1.jpg", "2.jpg"], {}, UsageError, "no class folders: its 2 files lie directly in it"),
        (["train/cat/1.jpg", "cat/2.jpg"], {}, UsageError, "mixes two layouts: 'train' beside 'cat'"),
        (["train/1.jpg", "test/2.jpg"], {}, UsageError, "hold images, but no class folders"),
        (["val/a/1.jpg", "valid/a/2.jpg"], {}, UsageError, "'val', 'valid' of .* are both validation"),
        (["cat/1.jpg"], {"source": {"layout": "splits"}}, UsageError, "no split folders: 'cat'"),
    ],
)
def test_folders_that_make_no_dataset(
    files: list[str], config: dict[str, Any], error: type[Exception], says: str, tmp_path: Path
) -> None:
    write(tmp_path, dict.fromkeys(files, b"x"))
    with pytest.raises(error, match=says) as caught:
        listed(tmp_path, **config)
    assert getattr(caught.value, "remedy", None)


def test_a_source_that_is_not_there_or_no_folder(tmp_path: Path) -> None:
    write(tmp_path, {"file": b""})
    with pytest.raises(NotFoundError, match="is not there"):
        listed(tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match="a file, not a folder"):
        listed(tmp_path / "file")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["photos/cat/1.jpg", "photos/dog/2.jpg"], "give 'photos' as source"),
        (["cat/1.jpg"], "a single class, 'cat'"),
        (["train/a/1.jpg", "train/b/1.jpg"], "no validation and no test"),
    ],
)
def test_warnings(files: list[str], says: str, tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(files, b"x"))
    (warning,) = listed(tmp_path).warnings
    assert says in warning


def test_the_digest_sees_every_change(tmp_path: Path) -> None:
    write(tmp_path, {"cat/1.jpg": b"x", "dog/2.jpg": b"y"})
    digests = [listed(tmp_path).digest()]
    assert listed(tmp_path).digest() == digests[0]
    os.utime(tmp_path / "cat/1.jpg", ns=(7, 7))
    digests.append(listed(tmp_path).digest())
    (tmp_path / "cat/1.jpg").rename(tmp_path / "cat/3.jpg")
    digests.append(listed(tmp_path).digest())
    write(tmp_path, {"dog/4.jpg": b""})
    digests.append(listed(tmp_path).digest())
    assert len(set(digests)) == 4


# -- groups --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"patient(\d+)", ["7", "12", None, "7"]),
        (r"(?:patient|p)(\d*)", ["7", "12", None, "7"]),  # nothing in the parenthesis is no group
        (r"^(\w)/", ["a", "a", "b", "b"]),
        (r"(x)?_2", [None, None, None, None]),
    ],
)
def test_a_pattern_gives_groups(pattern: str, groups: list[str | None], tmp_path: Path) -> None:
    names = ["a/patient7_1.png", "a/patient12_2.png", "b/p_3.png", "b/patient7.png"]
    write(tmp_path, dict.fromkeys(names, b"x"))
    config = PrepareConfig.model_validate({"groups": {"pattern": pattern}})
    table = list_inputs(SourceFolder(str(tmp_path)), config).table
    assert table.schema == LISTING_SCHEMA
    found = dict(zip(table["uri"].to_pylist(), table["group"].to_pylist(), strict=True))
    assert [found[name] for name in names] == groups


def test_without_a_pattern_there_are_no_groups(tmp_path: Path) -> None:
    write(tmp_path, {"a/1.png": b"x"})
    assert list_inputs(SourceFolder(str(tmp_path)), PrepareConfig()).table["group"].to_pylist() == [None]
