"""The images of a YOLO dataset and their splits, as its description lists them or its folders are named."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from shardmill.beam_jobs.sources.annotations.reading import SETTING
from shardmill.beam_jobs.sources.kinds.yolo.description import Description
from shardmill.beam_jobs.sources.kinds.yolo.places import Tree, split_of_folders
from shardmill.infra.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Member:
    """An image of the dataset.

    Attributes:
        path: its URI, or a path that no file has.
        split: its split, or None if it is to be chosen.
        uri: of the line or key that names it, if it has no other address.
    """

    path: str
    split: str | None
    uri: str


@dataclass(frozen=True, slots=True)
class Members:
    """The images of the dataset.

    Attributes:
        images: each once for each split that it is in.
        lists: URIs of the lists that name them.
        warnings: a sentence each.
    """

    images: list[Member]
    lists: list[str]
    warnings: list[str]


def find_members(tree: Tree, described: Description) -> Members:
    """Find the images of the dataset.

    Raises:
        ConfigError: what the description names for train or val is not there, or cannot be read.
    """
    if not described.parts:
        return Members([Member(uri, split_of_folders(uri), uri) for uri in tree.images()], [], [])
    bases, found = _bases(described), Members([], [], [])
    key_of: dict[str, str] = {}
    known: set[tuple[str, str]] = set()
    for key, split, place in described.parts:
        at = tree.find(place, bases)
        if at is None and key == "test":  # the default of Roboflow, whether there are such images or not
            found.warnings.append(f"{described.name}: test is {place}, which is not in the source")
            continue
        if at is None:
            raise ConfigError(
                f"{described.name}: {key} is {place}, and the source has no such folder or list of images",
                f"correct it, or name another file with {SETTING}",
            )
        if key_of.setdefault(at, key) != key:
            first = key_of[at]
            found.warnings.append(f"{described.name}: {key} is the same as {first}: its images are {first}")
            continue
        images = _of_folder(tree, at, key, split, described)
        if tree.is_file(at):
            found.lists.append(at)
            images = _of_list(tree, at, split, bases)
        for image in images:
            if (image.path, split) not in known:
                known.add((image.path, split))
                found.images.append(image)
    return found


def _bases(described: Description) -> list[str]:
    """Return the folders that paths may begin in: the root, the description's own folder, the source."""
    own = described.uri.rpartition("/")[0]
    root = posixpath.normpath(posixpath.join(own, described.root.replace("\\", "/")))
    return list(dict.fromkeys(["" if root == "." else root, own, ""]))


def _of_folder(tree: Tree, at: str, key: str, split: str, described: Description) -> Iterator[Member]:
    for uri in tree.images(at):
        yield Member(uri, split, f"{described.name}#{key}={uri}")


def _of_list(tree: Tree, at: str, split: str, bases: list[str]) -> Iterator[Member]:
    """The images that a list names, a path a line; one that begins with ``./`` is relative to the list."""
    data = tree.read(at)
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{at} is no list of images: {error}", "save it as UTF-8") from error
    if isinstance(data, str):
        raise ConfigError(f"the list of images cannot be read: {data}")
    own = at.rpartition("/")[0]
    for number, line in enumerate(text.splitlines(), 1):
        if place := line.strip():
            path = tree.find(place, [own, *bases])
            known = path if path is not None and tree.is_file(path) else place
            yield Member(known, split, f"{at}#row={number}")
