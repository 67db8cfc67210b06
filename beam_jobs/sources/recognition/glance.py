"""A glance at a source: the names in its first folders, enough to recognise its kind."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from shardmill.beam_jobs.sources.class_names import NO_CLASSES, plain_name
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns, SourceFault
from shardmill.infra.strict_json import dump_json

IMAGE_ENDINGS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic",
    ".heif", ".jp2", ".mpo", ".ppm", ".pgm", ".dcm", ".dicom",
)  # fmt: skip

_PLAIN_KEY = re.compile("[A-Za-z0-9_-]+")
_FOLDERS_LOOKED_INTO = 80
_FOLDERS_OF_A_FOLDER = 12  # besides those that are hardly classes, such as train and images
_NAMES_OF_A_FOLDER = 400  # except the top one, whose names are all looked at
_MOST_LEVELS = 12
_NOT_LOOKED_AT = IgnorePatterns((".*", "__MACOSX", "@eaDir"))


@dataclass(frozen=True)
class Recognised:
    """A kind of source that fits.

    Attributes:
        why: what was seen, as the end of a sentence that begins with the kind.
        settings: settings of the source, nested as in the configuration, that the kind needs.
        is_certain: the source describes itself; what other kinds take its files for does not count.
        image_folders: folders whose images the source describes; "" for the source itself. If all images lie
            in these or in folders that name no class, the folders are no classes.
        is_complete: whether ``settings`` suffice to read the source. A kind that needs further settings is
            chosen only if no other kind describes the images.
        readings: what the user may say, if this kind can be understood in several ways and is not to be
            chosen without a word; else empty.
    """

    why: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_certain: bool = False
    image_folders: Collection[str] = ()
    is_complete: bool = True
    readings: Sequence[str] = ()


@dataclass(frozen=True)
class Glance:
    """Names in a source.

    Attributes:
        folder: the source.
        files: URIs of files: all of the top folder, and some of the folders below.
    """

    folder: SourceFolder
    files: list[str]

    def ending_in(self, *endings: str) -> list[str]:
        """Return the files with one of these endings (lower case), whatever the case of their names."""
        return [uri for uri in self.files if uri.lower().endswith(endings)]

    @property
    def images(self) -> list[str]:
        """The image files."""
        return self.ending_in(*IMAGE_ENDINGS)

    def head(self, uri: str, length: int) -> bytes:
        """Return the first bytes of a file; none if it cannot be read."""
        try:
            with self.folder.open_container(uri) as file:
                return file.read_at(length, 0)
        except SourceFault:
            return b""

    def in_words(self) -> str:
        """Say what is there: "12 .jpg, 1 .csv"."""
        return by_endings(self.files) or "nothing"


def by_endings(uris: Iterable[str]) -> str:
    """Return how many files have each ending, the most first: "12 .jpg, 1 .csv"."""
    endings = Counter(PurePosixPath(uri).suffix.lower() or "without an ending" for uri in uris)
    return ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common(6))


def cli_for(kind: str, settings: Mapping[str, Any]) -> str:
    """Return the command-line options for a kind and settings of the source."""

    def options(path: str, value: Any) -> Iterator[str]:
        if isinstance(value, Mapping) and all(map(_PLAIN_KEY.fullmatch, value)):
            for name, inner in value.items():
                yield from options(f"{path}.{name}", inner)
        elif value is not None:
            yield f"--set {shlex.quote(f'{path}={_as_toml(value)}')}"

    return " ".join([f"--source-kind {kind}", *options("source", settings)])


def _as_toml(value: Any) -> str:
    """Return a value of a setting; a text that stands alone needs no quotes."""
    if isinstance(value, str):
        return value
    return _within_toml(value)


def _within_toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_within_toml, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {_within_toml(one)}" for key, one in value.items() if one is not None)
        return f"{{{', '.join(pairs)}}}"
    return dump_json(value)


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else dump_json(name)


def _some(names: Sequence[str]) -> list[str]:
    """Return some of the names of a large folder: a table may come behind all of its images."""
    is_image = [name.lower().endswith(IMAGE_ENDINGS) for name in names]
    images = [name for name, is_one in zip(names, is_image, strict=True) if is_one]
    others = [name for name, is_one in zip(names, is_image, strict=True) if not is_one]
    spread = images[_NAMES_OF_A_FOLDER :: 1 + len(images) // _NAMES_OF_A_FOLDER]  # of every class, by name
    return sorted([*images[:_NAMES_OF_A_FOLDER], *spread, *others[:_NAMES_OF_A_FOLDER]])


def glance_at(folder: SourceFolder) -> Glance:
    """Look at the names in a source; if it is limited to some files, at those.

    Raises:
        NotFoundError: there is no such folder or file.
    """
    if folder.only is not None:
        return Glance(folder, [file.uri for file in folder.walk(IgnorePatterns(()))])
    files: list[str] = []
    waiting = [""]
    for _ in range(_FOLDERS_LOOKED_INTO):
        if not waiting:
            break
        prefix = waiting.pop(0)
        in_files, in_folders = folder.names(prefix)
        seen = [name for name in in_files if _NOT_LOOKED_AT.match(name, name) is None]
        files += [f"{prefix}{name}" for name in (_some(seen) if prefix else seen)]
        if prefix.count("/") < _MOST_LEVELS:
            inner = [name for name in in_folders if _NOT_LOOKED_AT.match(name, name) is None]
            plain = [name for name in inner if plain_name(name) not in NO_CLASSES][:_FOLDERS_OF_A_FOLDER]
            waiting += [
                f"{prefix}{name}/" for name in inner if plain_name(name) in NO_CLASSES or name in plain
            ]
    return Glance(folder, files)
