"""The sources of labels and splits in archives: class folders, an archive a class, or sidecars.

Every member gets a *path*, whose folders give label and split as in a folder of images:

    folders       <split of the archive's name>/<name in the archive, without the folder around all of them>
    archives      <path of the archive without its ending>/<name in the archive>
    webdataset    the same as folders, but only the split is taken from it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources.class_folders import Shape
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.archive.listing import ListedArchive
from shardmill.beam_jobs.sources.kinds.archive.opening import ENDINGS
from shardmill.beam_jobs.sources.kinds.archive.sidecar_values import sample_key
from shardmill.infra.errors import UsageError

_PARTS = re.compile(r"[/._\-]+|(?<=[^\d])(?=\d)")

Kind = Literal["folders", "archives", "webdataset"]


@dataclass(frozen=True)
class Layout:
    """The layout of all archives of a source.

    Attributes:
        kind: where labels come from.
        prefix: folder around the class folders, with a slash, or "".
        splits: archive -> split that its name gives; None if names give none.
    """

    kind: Kind
    prefix: str = ""
    splits: Mapping[str, str] | None = None

    def path(self, archive: str, name: str) -> str:
        """Return the path of a member, given by the URI of its archive and its name in it."""
        if self.kind == "archives":
            return f"{without_ending(archive)}/{name}"
        path = name.removeprefix(self.prefix)
        return path if self.splits is None else f"{self.splits[archive]}/{path}"

    def paths(self, archive: str, names: Iterable[str]) -> list[str]:
        """Return the paths of members of one archive."""
        return [self.path(archive, name) for name in names]

    def described(self) -> str:
        """Return the layout in words."""
        words = {
            "folders": "labels by class folders in the archives",
            "archives": "labels by the names of the archives",
            "webdataset": "labels by sidecars (WebDataset)",
        }[self.kind]
        words += f" below {self.prefix}" if self.prefix else ""
        return words + ("" if self.splits is None else ", splits by the names of the archives")


def choose_layout(archives: Sequence[ListedArchive], config: PrepareConfig) -> Layout:
    """Choose the layout that the settings ask for, or that the members show.

    Raises:
        UsageError: the settings ask for a folder that no member lies in, or the archives have names of splits
            and nothing tells the classes.
    """
    settings = config.source.archive
    shape = shape_of(_names_of(archives))
    prefix = _prefix(shape, settings.prefix, archives)
    if prefix:
        shape = shape_of(name.removeprefix(prefix) for name in _names_of(archives))
    kind = settings.layout
    if kind == "auto":
        kind = _recognised(archives, shape, config)
    splits = splits_by_name(archives, config) if kind != "archives" else None
    if kind == "folders" and splits is not None and _are_splits(shape):
        splits = None  # the folders in the archives name the split
    return Layout(kind, prefix, splits)


def shape_of(paths: Iterable[str]) -> Shape:
    """Return the contents of the root that paths lie below."""
    shape = Shape()
    for path in paths:
        shape.add(path, is_ignored=False)
    return shape


def _names_of(archives: Iterable[ListedArchive]) -> Iterator[str]:
    """Yield the names of the members that may be images."""
    for archive in archives:
        yield from archive.image_names()


def without_ending(archive: str) -> str:
    """Return the URI of an archive without the ending that says what it is."""
    ending = max((ending for ending in ENDINGS if archive.lower().endswith(ending)), key=len, default="")
    return archive[: len(archive) - len(ending)]


def _recognised(archives: Sequence[ListedArchive], shape: Shape, config: PrepareConfig) -> Kind:
    if any(archive.labels or archive.values for archive in archives):
        return "webdataset"
    if shape.tops:
        return "folders"
    are_classes = (
        len(archives) > 1 and config.source.label_kind == "class" and not _are_named_as_splits(archives)
    )
    if not are_classes and any(map(_has_sidecars, archives)):
        return "webdataset"
    if len(archives) < 2:
        return "folders"
    if config.source.label_kind != "class":  # only the split is taken from the path
        return "archives" if splits_by_name(archives, config) is None else "folders"
    if not are_classes:
        raise UsageError(
            "the images lie directly in the archives, beside no labels, and "
            f"{quoted([archive.uri for archive in archives])} are names of splits, not of classes",
            "say --set source.labels=none if the images have no labels, or --set source.layout=classes "
            "--set source.archive.layout=archives if each archive is a class (docs/archives.md)",
        )
    return "archives"


def _are_named_as_splits(archives: Sequence[ListedArchive]) -> bool:
    """Tell whether the names of archives are those of splits: of all, or of one without another word."""
    names = [_PARTS.split(without_ending(archive.uri).rpartition("/")[2].lower()) for archive in archives]
    have_split = [any(part in SPLIT_OF_FOLDER for part in parts) for parts in names]
    return all(have_split) or any(
        all(part in SPLIT_OF_FOLDER or part in ("", "of") or part.isdecimal() for part in parts)
        for parts, is_one in zip(names, have_split, strict=True)
        if is_one
    )


def _has_sidecars(archive: ListedArchive) -> bool:
    """Tell whether an archive has a sidecar of an image in it, by their names."""
    described = set(map(sample_key, archive.sidecars))
    return any(sample_key(name) in described for name in archive.image_names())


def _prefix(shape: Shape, given: str | None, archives: Sequence[ListedArchive]) -> str:
    """Return the folder that the class folders lie in, with a slash; "" for none."""
    if given is not None:
        prefix = f"{given.strip('/')}/" if given.strip("/") else ""
        if prefix and not any(name.startswith(prefix) for name in _names_of(archives)):
            raise UsageError(
                f"source.archive.prefix = {given!r}: no member lies in that folder",
                "give a folder as the archives name it",
            )
        return prefix
    if len(shape.tops) != 1 or shape.num_direct:
        return ""
    ((name, top),) = shape.tops.items()
    holds_splits = any(folder.lower() in SPLIT_OF_FOLDER for folder in top.subfolders)
    is_around = not top.num_direct and (len(top.subfolders) > 1 or holds_splits)
    return f"{name}/" if is_around and name.lower() not in SPLIT_OF_FOLDER else ""


def _are_splits(shape: Shape) -> bool:
    return bool(shape.tops) and all(
        name.lower() in SPLIT_OF_FOLDER and top.subfolders for name, top in shape.tops.items()
    )


def splits_by_name(archives: Sequence[ListedArchive], config: PrepareConfig) -> dict[str, str] | None:
    """Return archive -> split, if every archive's name has one and some are for training."""
    if not config.source.archive.splits_by_name or config.source.layout == "classes":
        return None
    found = {}
    for archive in archives:
        parts = _PARTS.split(without_ending(archive.uri).lower())
        split = next((SPLIT_OF_FOLDER[part] for part in parts if part in SPLIT_OF_FOLDER), None)
        if split is None:
            return None
        found[archive.uri] = split
    return found if "train" in found.values() else None
