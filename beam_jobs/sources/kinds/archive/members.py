"""The members of an archive, as its format lists them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from shardmill.beam_jobs.reasons import BAD_NAME
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.storage.locations import uri_of

MAX_SIDECAR_BYTES = 1 << 20
# Endings of members that say something of an image of the same name (WebDataset).
LABEL_SIDECARS = ("cls", "json")
_MAX_NAME_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive.

    Attributes:
        name: name in the archive, as a URI; see shardmill.infra.storage.locations.
        size_bytes: length of its content, as the archive declares it.
        position: place in the archive (bytes): of the content in a tar, of the local header in a zip.
        fault: why it cannot be read, or None.
        content: the whole content of a sidecar that may name a label; else None.
    """

    name: str
    size_bytes: int
    position: int
    fault: SourceFault | None = None
    content: bytes | None = None


class ArchiveDamaged(Exception):
    """The archive is damaged from here on. The message says how, for people."""


class ArchiveBytes(Protocol):
    """An archive as bytes, in a file or unpacked on the way."""

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only if the archive ends."""

    def reaches(self, offset: int) -> bool:
        """Tell whether the archive has at least so many bytes."""


def member_name(raw: str) -> tuple[str, SourceFault | None]:
    """Return the name of a member as a URI, and why the member cannot be used, if its name is hostile.

    Args:
        raw: as Python decodes it, with surrogate escapes for bytes that are not UTF-8.
    """
    name = uri_of(raw.split("\0", 1)[0])
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    if not name or len(name) > _MAX_NAME_CHARACTERS or "\0" in raw:
        return name[:_MAX_NAME_CHARACTERS], SourceFault(
            BAD_NAME, "its name is empty, too long or cut by a NUL"
        )
    if name.startswith(("/", "\\")) or (name[1:3] in (":/", ":\\") and name[0].isalpha()):
        return name, SourceFault(BAD_NAME, "its name is an absolute path")
    if ".." in name.replace("\\", "/").split("/"):
        return name, SourceFault(BAD_NAME, "its name leads out of the archive")
    return name, None


def is_sidecar(name: str, size_bytes: int, endings: Collection[str]) -> bool:
    """Tell whether a member has one of some endings, and is not too long for a sidecar."""
    return size_bytes <= MAX_SIDECAR_BYTES and name.rpartition(".")[2].lower() in endings
