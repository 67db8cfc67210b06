"""The members of a tar archive: ustar, GNU and pax, as POSIX.1-2001 and GNU tar write them.

The headers are parsed by Python's ``tarfile``. The walk from header to header is our own, because
``tarfile.TarFile`` silently ends at a damaged header, reads extended headers of any length into memory, and
remembers every member.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from shardmill.beam_jobs.reasons import ARCHIVED_LINK, DAMAGED_MEMBER, SPECIAL_FILE, UNSUPPORTED_MEMBER
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.archive.members import (
    LABEL_SIDECARS,
    ArchiveBytes,
    ArchiveDamaged,
    Member,
    is_sidecar,
    member_name,
)

_BLOCK = tarfile.BLOCKSIZE
_MAX_EXTENDED_BYTES = 1 << 20  # longest long name or pax header
_AFTER_END_BYTES = 1 << 16  # looked at behind the end mark
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_LINKS = {tarfile.LNKTYPE: "a hard link", tarfile.SYMTYPE: "a symbolic link"}
_SPECIAL = {tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a pipe"}
_EXTENDED = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X")


@dataclass
class _Extension:
    """The extended headers of the next member."""

    name: str | None = None
    size_bytes: int | None = None
    is_sparse: bool = False


def tar_members(ranges: ArchiveBytes, *, sidecars: Collection[str] = LABEL_SIDECARS) -> Iterator[Member]:
    """Yield the members of a tar archive in its order, without directories.

    Args:
        ranges: the archive.
        sidecars: endings of the members whose content is read, in lower case.

    Raises:
        ArchiveDamaged: it is cut short, or a header is damaged; members before it were yielded.
    """
    offset, extension = 0, _Extension()
    while True:
        block = ranges.read_at(_BLOCK, offset)
        if len(block) < _BLOCK:
            raise ArchiveDamaged(
                f"it ends at byte {offset + len(block):,} without an end mark, as if it were cut short"
            )
        if not any(block):
            _check_end(ranges, offset)
            return
        header = _parsed(block, offset)
        offset += _BLOCK
        if header.type in _EXTENDED:
            _extend(extension, header, ranges, offset)
            offset = _behind(offset, header.size)
            continue
        size_bytes = header.size if extension.size_bytes is None else extension.size_bytes
        has_content = header.type in _FILES or header.type not in tarfile.SUPPORTED_TYPES
        end = _behind(offset, size_bytes) if has_content or header.type in tarfile.GNU_TYPES else offset
        if header.type != tarfile.DIRTYPE:
            member = _member(header, extension, offset, size_bytes)
            if member.fault is None and is_sidecar(member.name, size_bytes, sidecars):
                content = ranges.read_at(size_bytes, offset)
                member = Member(member.name, size_bytes, offset, content=content)
            is_whole = not has_content or ranges.reaches(offset + size_bytes)
            yield member if is_whole else _cut(member)
            if not is_whole:
                raise ArchiveDamaged(f"it is cut short within {member.name}")
        offset, extension = end, _Extension()


def _behind(offset: int, size_bytes: int) -> int:
    return offset + -(-size_bytes // _BLOCK) * _BLOCK


def _parsed(block: bytes, offset: int) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as error:
        raise ArchiveDamaged(f"there is no header of a member at byte {offset:,}: {error}") from error
    if header.size < 0:
        raise ArchiveDamaged(f"the header at byte {offset:,} declares a negative size")
    return header


def _member(header: tarfile.TarInfo, extension: _Extension, offset: int, size_bytes: int) -> Member:
    name, fault = member_name(header.name if extension.name is None else extension.name)
    if header.type in _LINKS:
        target = member_name(header.linkname)[0]
        fault = SourceFault(ARCHIVED_LINK, f"{_LINKS[header.type]} to {target}")
    elif header.type in _SPECIAL:
        fault = SourceFault(SPECIAL_FILE, f"{_SPECIAL[header.type]}, not a file")
    elif extension.is_sparse or header.type == tarfile.GNUTYPE_SPARSE:
        fault = fault or SourceFault(UNSUPPORTED_MEMBER, "it is stored as a sparse file")
    elif header.type not in _FILES:
        fault = fault or SourceFault(UNSUPPORTED_MEMBER, f"its type {header.type!r} is not known")
    is_file = header.type not in _LINKS and header.type not in _SPECIAL
    return Member(name, size_bytes if is_file else 0, offset, fault)


def _cut(member: Member) -> Member:
    fault = member.fault or SourceFault(DAMAGED_MEMBER, "the archive ends within it")
    return Member(member.name, member.size_bytes, member.position, fault)


def _extend(extension: _Extension, header: tarfile.TarInfo, ranges: ArchiveBytes, offset: int) -> None:
    """Read an extended header that belongs to the next member."""
    if header.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
        return  # global headers name no member; links are not followed
    if header.size > _MAX_EXTENDED_BYTES:
        raise ArchiveDamaged(f"the extended header at byte {offset - _BLOCK:,} has {header.size:,} bytes")
    data = ranges.read_at(header.size, offset)
    if len(data) < header.size:
        raise ArchiveDamaged("it is cut short within the name of a member")
    if header.type == tarfile.GNUTYPE_LONGNAME:
        extension.name = data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        return
    for key, value in _pax_records(data, offset):
        if key == b"path":
            extension.name = value.decode("utf-8", "surrogateescape")
        elif key == b"size":
            if not value.isdigit() or len(value) > 18:
                raise ArchiveDamaged(f"the extended header at byte {offset - _BLOCK:,} declares no size")
            extension.size_bytes = int(value)
        elif key.startswith(b"GNU.sparse."):
            extension.is_sparse = True


def _pax_records(data: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of a pax header: length, space, key, "=", value and a new line each."""
    while data and data[0]:
        digits, _, _ = data[:20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, mark, value = data[len(digits) + 1 : length - 1].partition(b"=")
        if not mark or length > len(data):
            raise ArchiveDamaged(f"the extended header at byte {offset - _BLOCK:,} is damaged")
        yield key, value
        data = data[length:]


def _check_end(ranges: ArchiveBytes, offset: int) -> None:
    """Check that nothing follows the end mark: archives that were joined have members there."""
    if any(ranges.read_at(_AFTER_END_BYTES, offset)):
        raise ArchiveDamaged(
            f"more follows its end mark at byte {offset:,}, as if archives were joined: keep them apart, or "
            "join them with tar --concatenate"
        )
