"""Images in class folders: layouts, labels, warnings and refusals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import LISTING_SCHEMA
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.errors import ConfigError, NotFoundError, UsageError
from tests.samples.images.photos import write


@pytest.mark.parametrize(
    "names", [("Cat", "cat"), ("caf\u00e9", "cafe\u0301"), ("STRASSE", "straße"), ("Ｃat", "cat")]
)
def test_classes_whose_names_look_alike_are_reported(names: tuple[str, str], tmp_path: Path) -> None:
    write(tmp_path, {f"{name}/1.jpg": b"x" for name in (*names, "dog")})
    found = listed(tmp_path)
    assert {label for label, _, _ in labels(found).values()} == {*names, "dog"}
    (warning,) = found.warnings
    assert all(ascii(name) in warning for name in names)
    assert "dog" not in warning


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
