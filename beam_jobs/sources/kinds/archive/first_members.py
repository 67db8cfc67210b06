"""The first members of an archive, to see how its images are encoded and labelled."""

from __future__ import annotations

from collections.abc import Iterator

from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.container import Container
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.archive.members import ArchiveDamaged, Member
from shardmill.beam_jobs.sources.kinds.archive.opening import UnpackedStream, compression_of
from shardmill.beam_jobs.sources.kinds.archive.tar import tar_members
from shardmill.beam_jobs.sources.kinds.archive.zip import read_zip_member, zip_members

_HEAD_BYTES = 16 << 20  # bytes of a compressed tar that are unpacked
_MAX_MEMBER_BYTES = 64 << 20  # larger ones are not looked at


def first_members(folder: SourceFolder, archive: FileRef) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the members of an archive in its order, as far as they can be read.

    Args:
        folder: the source.
        archive: a tar, also compressed, or a zip.
    """
    try:
        with folder.open_container(archive.uri) as container:
            yield from _contents(container)
    except (SourceFault, ArchiveDamaged):
        return  # the listing says it


def _contents(container: Container) -> Iterator[tuple[str, bytes]]:
    if container.uri.lower().endswith(".zip"):
        for member in zip_members(container, sidecars=()):
            ref = FileRef(member.name, member.size_bytes, 0, container.uri, member.position)
            if _is_bearable(member):
                yield member.name, read_zip_member(container, ref)
        return
    compression = compression_of(container.uri)
    ranges: Container | _Head = container
    if compression is not None:
        ranges = _Head(b"".join(UnpackedStream(container, compression, _HEAD_BYTES).chunks()))
    for member in tar_members(_Bytes(ranges), sidecars=()):
        if _is_bearable(member):
            yield member.name, ranges.read_at(member.size_bytes, member.position)


def _is_bearable(member: Member) -> bool:
    return member.fault is None and member.size_bytes <= _MAX_MEMBER_BYTES


class _Head:
    """The first bytes of a compressed tar, unpacked."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def read_at(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]


class _Bytes:
    """A tar that can be read at any place."""

    def __init__(self, ranges: Container | _Head) -> None:
        self._ranges = ranges

    def read_at(self, length: int, offset: int) -> bytes:
        return self._ranges.read_at(length, offset)

    def reaches(self, offset: int) -> bool:
        return offset <= self._ranges.size_bytes
