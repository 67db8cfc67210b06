"""The members of a zip archive, and their content: stored, deflated or bzip2.

The central directory is read by Python's ``zipfile``. Members are read by their local header, so that a
worker needs no directory. If the directory is missing, because the archive was cut short, the local headers
are walked from the first one on.
"""

from __future__ import annotations

import bz2
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from typing import Any

from shardmill.beam_jobs.reasons import ARCHIVED_LINK, DAMAGED_MEMBER, ENCRYPTED, UNSUPPORTED_MEMBER
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.container import Container
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.archive.members import (
    LABEL_SIDECARS,
    ArchiveDamaged,
    Member,
    is_sidecar,
    member_name,
)

# Signature, version, flags, method, time, date, CRC-32, compressed size, size, lengths of name and extra.
_LOCAL = struct.Struct("<4s5H3L2H")
_LOCAL_MARK, _DESCRIPTOR_MARK = b"PK\3\4", b"PK\7\x08"
_ENCRYPTED, _SIZES_BEHIND, _UTF8 = 1 << 0, 1 << 3, 1 << 11
_STORED, _DEFLATED, _BZIP2 = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2
_OF_WINDOWS = (0, 10, 11)  # FAT, NTFS, VFAT: the system that an archive was made on
_NAMES_BYTES = 512  # read with the header, for its name and extra field
_CHUNK_BYTES = 1 << 18
_ZIP64 = 0xFFFFFFFF
# What zipfile raises for directories that are damaged on purpose.
_DAMAGE = (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError, struct.error, IndexError)


def zip_members(archive: Container, *, sidecars: Collection[str] = LABEL_SIDECARS) -> Iterator[Member]:
    """Yield the members of a zip archive in the order of its directory, without directories.

    Args:
        archive: the archive.
        sidecars: endings of the members whose content is read, in lower case.

    Raises:
        ArchiveDamaged: it is cut short or damaged; the members that can be found were yielded.
    """
    buffered = io.BufferedReader(archive)
    try:
        with zipfile.ZipFile(buffered) as directory:
            found = [_listed(info) for info in _with_slashes(directory.infolist()) if not info.is_dir()]
            buffered.detach()  # or it would close the archive
    except _DAMAGE as error:
        buffered.detach()
        yield from _salvaged(archive)
        raise ArchiveDamaged(f"its directory cannot be read: {error}") from error
    for member in found:
        if member.fault is None and is_sidecar(member.name, member.size_bytes, sidecars):
            yield _with_content(archive, member)
        else:
            yield member


def read_zip_member(archive: Container, file: FileRef) -> bytes:
    """Read the content of a member, and check its size and checksum.

    Raises:
        SourceFault: it is damaged, or stored in a way that is not supported.
    """
    position, size_bytes = file.position or 0, file.size_bytes
    # As a rule an image cannot be compressed, so that one request has all of it.
    head = archive.read_at(_LOCAL.size + _NAMES_BYTES + size_bytes + 64, position)
    if len(head) < _LOCAL.size or head[:4] != _LOCAL_MARK:
        raise SourceFault(DAMAGED_MEMBER, "it is not where the directory of the archive says")
    _, _, flags, method, _, _, crc, _, _, num_name, num_extra = _LOCAL.unpack_from(head)
    _check_readable(flags, method)
    start = _LOCAL.size + num_name + num_extra
    if method == _STORED:
        if len(head) < start + size_bytes + 16:
            head += archive.read_at(start + size_bytes + 16 - len(head), position + len(head))
        data, behind = head[start : start + size_bytes], head[start + size_bytes : start + size_bytes + 16]
    else:
        data, behind = _unpacked(archive, method, position + start, size_bytes, head[start:])
    if len(data) != size_bytes:
        raise SourceFault(DAMAGED_MEMBER, f"it has not the {size_bytes:,} bytes that the archive declares")
    if flags & _SIZES_BEHIND and not crc:
        at = 4 if behind[:4] == _DESCRIPTOR_MARK else 0
        crc = int.from_bytes(behind[at : at + 4], "little")
    if zlib.crc32(data) != crc:
        raise SourceFault(DAMAGED_MEMBER, "its checksum is wrong")
    return data


def _with_slashes(infos: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    r"""Return the entries of a directory with ``/`` between folders in place of ``\``.

    .NET before 4.6.1 and what is made with it write ``\``, against the specification. On other systems it may
    be part of a name, so it stays where the archive was made there and has a name with a slash too.
    """
    has_slashes = any("/" in info.orig_filename for info in infos)
    for info in infos:
        if "/" not in info.orig_filename and (info.create_system in _OF_WINDOWS or not has_slashes):
            info.orig_filename = info.orig_filename.replace("\\", "/")
            info.filename = info.orig_filename
    return infos


def _listed(info: zipfile.ZipInfo) -> Member:
    name, fault = member_name(info.orig_filename)
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        fault = fault or SourceFault(ARCHIVED_LINK, "a symbolic link")
    if fault is None:
        try:
            _check_readable(info.flag_bits, info.compress_type)
        except SourceFault as found:
            fault = found
    return Member(name, info.file_size, info.header_offset, fault)


def _check_readable(flags: int, method: int) -> None:
    if flags & _ENCRYPTED:
        raise SourceFault(ENCRYPTED, "it is encrypted")
    if method not in (_STORED, _DEFLATED, _BZIP2):
        message = f"its compression method {method} is not supported; stored, deflate and bzip2 are"
        raise SourceFault(UNSUPPORTED_MEMBER, message)


def _with_content(archive: Container, member: Member) -> Member:
    try:
        content = read_zip_member(archive, _ref(archive, member))
    except SourceFault as fault:
        return Member(member.name, member.size_bytes, member.position, fault)
    return Member(member.name, member.size_bytes, member.position, content=content)


def _ref(archive: Container, member: Member) -> FileRef:
    return FileRef(member.name, member.size_bytes, 0, archive.uri, member.position)


def _unpacked(
    archive: Container, method: int, offset: int, size_bytes: int, chunk: bytes
) -> tuple[bytes, bytes]:
    """Return (at most one byte more than declared, the bytes behind the compressed ones)."""
    decompress: Any = zlib.decompressobj(-15) if method == _DEFLATED else bz2.BZ2Decompressor()
    data = b""
    try:
        while chunk:
            offset += len(chunk)
            data += decompress.decompress(chunk, size_bytes + 1 - len(data))
            if decompress.eof or len(data) > size_bytes:
                break
            chunk = archive.read_at(_CHUNK_BYTES, offset)
    except (zlib.error, OSError, EOFError) as error:
        raise SourceFault(DAMAGED_MEMBER, f"it cannot be unpacked: {error}") from error
    behind = bytes(decompress.unused_data)
    return data, behind if len(behind) >= 16 else behind + archive.read_at(16 - len(behind), offset)


def _salvaged(archive: Container) -> Iterator[Member]:
    """Yield the members of an archive without a directory, by their local headers."""
    position = 0
    while len(head := archive.read_at(_LOCAL.size, position)) == _LOCAL.size and head[:4] == _LOCAL_MARK:
        _, _, flags, method, _, _, _, packed, size_bytes, num_name, num_extra = _LOCAL.unpack(head)
        start = position + _LOCAL.size + num_name + num_extra
        raw = archive.read_at(num_name, position + _LOCAL.size)
        text = raw.decode("utf-8" if flags & _UTF8 else "cp437", "surrogateescape")
        name, fault = member_name(text)
        if flags & _SIZES_BEHIND or _ZIP64 in (packed, size_bytes):
            return  # its end is not known, nor where the next one begins
        if start + packed > archive.size_bytes:
            fault = fault or SourceFault(DAMAGED_MEMBER, "the archive ends within it")
        if not text.endswith("/"):
            try:
                _check_readable(flags, method)
            except SourceFault as found:
                fault = fault or found
            yield Member(name, size_bytes, position, fault)
        position = start + packed
