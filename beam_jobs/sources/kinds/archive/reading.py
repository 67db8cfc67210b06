"""Read members of archives by their position, and unpack compressed tars into the spool of the run."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from shardmill.beam_jobs.reasons import DAMAGED_MEMBER, UNREADABLE, VANISHED
from shardmill.beam_jobs.schemas import FileRef, has_masks
from shardmill.beam_jobs.sources.files.container import Container
from shardmill.beam_jobs.sources.files.containers import Containers
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.archive.members import ArchiveDamaged, Member
from shardmill.beam_jobs.sources.kinds.archive.opening import UnpackedStream, compression_of, members_of
from shardmill.beam_jobs.sources.kinds.archive.tar import tar_members
from shardmill.beam_jobs.sources.kinds.archive.zip import read_zip_member, zip_members
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import NotFoundError
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import RangeReader

_FOLDER = "archives"


class ArchiveReader:
    """Reads images out of archives. Picklable; opens archives when it reads.

    Args:
        folder: the source.
        scratch: folder of the run, in which ``unpack_compressed`` left the compressed tars; None outside of
            a run, where members of compressed tars cannot be read.
    """

    def __init__(self, folder: SourceFolder, scratch: Storage | None) -> None:
        self._folder = folder
        self._archives = Containers(folder)
        self._unpacked = None if scratch is None else RangeReader(scratch, max_open=16)

    def read(self, file: FileRef) -> bytes:
        """Read the content of a member.

        Raises:
            SourceFault: the archive or the member cannot be read. StorageError: this machine is at fault.
        """
        self._folder.check_length(file.size_bytes)
        if file.container is None:
            file = self._found(file)
        if compression_of(file.container or "") is not None:
            data = self._read_unpacked(file)
        else:
            archive = self._archives.of(file)
            if archive.uri.lower().endswith(".zip"):
                return read_zip_member(archive, file)
            data = archive.read_at(file.size_bytes, file.position or 0)
            archive.check_unchanged(file.mtime_ns)
        if len(data) != file.size_bytes:
            raise SourceFault(DAMAGED_MEMBER, "the archive ends within it")
        return data

    def _read_unpacked(self, file: FileRef) -> bytes:
        if self._unpacked is None:
            raise SourceFault(UNREADABLE, "it lies in a compressed archive, which is not unpacked any more")
        path = _unpacked_file(file.container or "", file.mtime_ns)
        try:
            return self._unpacked.read(path, file.position or 0, file.size_bytes)
        except NotFoundError as error:
            raise SourceFault(VANISHED, "its archive was gone when it was to be unpacked") from error

    def _found(self, file: FileRef) -> FileRef:
        """Look a member up by its URI, for the report."""
        uri, mark, name = file.uri.partition("#")
        if not mark or compression_of(uri) is not None:
            raise SourceFault(UNREADABLE, "it lies in a compressed archive, which is not unpacked any more")
        with self._folder.open_container(uri) as archive:
            members = members_of(archive, is_local=self._folder.is_local, at_most_bytes=0, sidecars=())
            try:
                for member in members:
                    if member.name == name and member.size_bytes == file.size_bytes:
                        return FileRef(file.uri, file.size_bytes, file.mtime_ns, uri, member.position)
            except ArchiveDamaged:
                pass
        raise SourceFault(UNREADABLE, "it is not in the archive any more")


def _unpacked_file(uri: str, mtime_ns: int) -> str:
    """Return the path of an unpacked tar, relative to the folder of the run."""
    return f"{_FOLDER}/{digest_of([uri, mtime_ns], length=24)}.tar"


def unpack_compressed(
    folder: SourceFolder, references: pa.Table, scratch: Storage, at_most_bytes: int
) -> None:
    """Unpack each compressed tar that has members to be read to one plain tar in the folder of the run.

    Args:
        folder: the source.
        references: REFERENCE_SCHEMA and MEMBER_COLUMNS, and maybe those of masks.
        scratch: folder of the run.
        at_most_bytes: that an archive may unpack to; its listing has no member beyond.
    """
    places = [("container", "mtime_ns")]
    if has_masks(references):
        places.append(("mask_container", "mask_mtime_ns"))
    columns = pa.concat_tables(
        pa.table({"container": references[name].cast(pa.string()), "mtime_ns": references[changed]})
        for name, changed in places
    )
    for row in columns.group_by(["container", "mtime_ns"]).aggregate([]).sort_by("container").to_pylist():
        uri, mtime_ns = row["container"], row["mtime_ns"]
        path = _unpacked_file(uri or "", mtime_ns)
        compression = None if uri is None else compression_of(uri)
        if compression is None or scratch.exists(path):
            continue
        log(f"unpacking {uri} into the spool of the run")
        try:
            archive = folder.open_container(uri)
        except SourceFault:
            continue  # its members find the same, a row each
        with archive, scratch.atomic_writer(path) as stream:
            for chunk in UnpackedStream(archive, compression, at_most_bytes).chunks():
                stream.write(chunk)


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
    ranges = _start_of(container)
    for member in tar_members(_Bytes(ranges), sidecars=()):
        if _is_bearable(member):
            yield member.name, ranges.read_at(member.size_bytes, member.position)


def first_names(folder: SourceFolder, archive: str) -> Iterator[str]:
    """Yield the names of the members of a tar in its order, as far as they can be read."""
    try:
        with folder.open_container(archive) as container:
            yield from (member.name for member in tar_members(_Bytes(_start_of(container)), sidecars=()))
    except (SourceFault, ArchiveDamaged):
        return


def _start_of(container: Container) -> Container | _Head:
    """Return a tar, or the first bytes of what a compressed one unpacks to."""
    compression = compression_of(container.uri)
    if compression is None:
        return container
    return _Head(b"".join(UnpackedStream(container, compression, _HEAD_BYTES).chunks()))


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
