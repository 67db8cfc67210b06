"""Open an archive by its ending, and unpack a compressed tar as a stream.

A compressed stream can only be read from its beginning. It is read once to list its members. If images in it
must be read, it is unpacked once more, into one plain tar in the spool of the run, from which all workers
read their members by offset. So no byte is decompressed more than twice, whatever the order of reading, and
no member is ever unpacked to a file.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Collection, Iterator
from typing import IO, Any, cast

import pyarrow as pa
from isal import isal_zlib

from shardmill.beam_jobs.sources.files.container import Container, Window
from shardmill.beam_jobs.sources.kinds.archive.members import LABEL_SIDECARS, ArchiveDamaged, Member
from shardmill.beam_jobs.sources.kinds.archive.tar import tar_members
from shardmill.beam_jobs.sources.kinds.archive.zip import zip_members

COMPRESSIONS = {
    ".tar.gz": "gzip", ".tgz": "gzip", ".tar.bz2": "bzip2", ".tbz2": "bzip2", ".tar.xz": "xz", ".txz": "xz",
    ".tar.zst": "zstd", ".tzst": "zstd",
}  # fmt: skip
ENDINGS = (".tar", ".zip", *COMPRESSIONS)

_LOCAL_WINDOW_BYTES = 4 << 10
_REMOTE_WINDOW_BYTES = 1 << 20  # a request takes as long as so many bytes
_STREAM_BYTES = 1 << 20
_ZSTD_BYTES = 1 << 16
_GZIP = 31  # the format, as zlib numbers it
_DAMAGE = cast(
    tuple[type[BaseException], ...],
    (EOFError, OSError, zlib.error, isal_zlib.error, lzma.LZMAError, pa.ArrowException),
)


def is_archive(uri: str) -> bool:
    """Tell whether a file is an archive, by its ending."""
    return uri.lower().endswith(ENDINGS)


def compression_of(uri: str) -> str | None:
    """Return the compression of a tar; None for a plain tar or a zip."""
    return next((name for ending, name in COMPRESSIONS.items() if uri.lower().endswith(ending)), None)


def members_of(
    archive: Container, *, is_local: bool, at_most_bytes: int, sidecars: Collection[str] = LABEL_SIDECARS
) -> Iterator[Member]:
    """Yield the members of an archive.

    Args:
        archive: the archive.
        is_local: whether a request for a few bytes takes no time.
        at_most_bytes: that a compressed tar may unpack to.
        sidecars: endings of the members whose content is read, in lower case.

    Raises:
        ArchiveDamaged: behind the last member that can be found.
    """
    if archive.uri.lower().endswith(".zip"):
        return zip_members(archive, sidecars=sidecars)
    compression = compression_of(archive.uri)
    if compression is not None:
        return tar_members(UnpackedStream(archive, compression, at_most_bytes), sidecars=sidecars)
    window = _Window(archive, _LOCAL_WINDOW_BYTES if is_local else _REMOTE_WINDOW_BYTES)
    return tar_members(window, sidecars=sidecars)


class _Window(Window):
    """A plain archive, read a window at a time."""

    def __init__(self, archive: Container, window_bytes: int) -> None:
        super().__init__(archive, window_bytes)
        self._size_bytes = archive.size_bytes

    def reaches(self, offset: int) -> bool:
        """Tell whether the archive has at least so many bytes."""
        return offset <= self._size_bytes


class UnpackedStream:
    """A compressed tar as if it were unpacked, read forwards. Memory holds about a MiB of it.

    Args:
        archive: the compressed tar.
        compression: gzip, bzip2, xz or zstd.
        at_most_bytes: that it may unpack to.
    """

    def __init__(self, archive: Container, compression: str, at_most_bytes: int) -> None:
        self._stream = _decompressing(archive, compression)
        self._at_most_bytes = at_most_bytes
        self._start, self._data = 0, b""  # place and bytes that were unpacked last
        self._num_unpacked_bytes = 0
        self._damage = ""

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``, which must not lie before an earlier one.

        Raises:
            ArchiveDamaged: the compressed stream ends or breaks before, or unpacks to more than is allowed.
        """
        if offset < self._start:
            raise ValueError("a compressed stream is read forwards")
        while self._start + len(self._data) <= offset:
            if not (data := self._next()):
                return self._ended()
            self._start += len(self._data)
            self._data = data
        found = self._data[offset - self._start :]
        while len(found) < length and (data := self._next()):
            found += data
        self._start, self._data = offset, found
        if len(found) < length and self._damage:
            self._ended()
        return found[:length]

    def reaches(self, offset: int) -> bool:
        """Tell whether the archive has at least so many bytes; skips to there."""
        try:
            return offset <= self._start or bool(self.read_at(1, offset - 1))
        except ArchiveDamaged:
            return False

    def chunks(self) -> Iterator[bytes]:
        """Yield all that can be unpacked; ends without an error where the stream is damaged."""
        while data := self._next():
            yield data

    def _next(self) -> bytes:
        """Unpack some more: empty at the end, and where the stream breaks."""
        if self._damage:
            return b""
        if self._num_unpacked_bytes > self._at_most_bytes:
            self._damage = (
                f"it unpacks to more than the {self._at_most_bytes:,} bytes of source.archive.unpacked_bytes"
            )
            return b""
        try:
            data = cast(bytes, self._stream.read1(_STREAM_BYTES))
        except _DAMAGE as error:
            self._damage = f"it is cut short or damaged, and cannot be unpacked further: {error}"
            return b""
        self._num_unpacked_bytes += len(data)
        return data

    def _ended(self) -> bytes:
        if self._damage:
            raise ArchiveDamaged(self._damage)
        return b""


def _decompressing(archive: Container, compression: str) -> Any:
    raw = cast(IO[bytes], io.BufferedReader(archive, _STREAM_BYTES))
    if compression == "gzip":
        return _GzipStream(raw)
    if compression == "bzip2":
        return bz2.BZ2File(raw)
    if compression == "xz":
        return lzma.LZMAFile(raw)
    return _ZstdStream(raw)


class _GzipStream:
    """A gzip stream of one or more members, with the one function of files that is used here.

    Unlike the file of ``isal.igzip``, it gives all that comes before a cut.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._member: Any = isal_zlib.decompressobj(wbits=_GZIP)
        self._input = b""
        self._has_ended = False

    def read1(self, size: int) -> bytes:
        while not self._has_ended:
            if not self._input and not (read := self._raw.read(_STREAM_BYTES >> 2)):
                raise EOFError("it ends early")
            self._input = self._input or read
            data = cast(bytes, self._member.decompress(self._input, size))
            self._input = self._member.unconsumed_tail
            if self._member.eof:
                # Zeros may fill up the last block of a tape.
                rest = (self._member.unused_data or self._raw.read(_STREAM_BYTES >> 2)).lstrip(b"\0")
                self._has_ended = not rest
                self._member, self._input = isal_zlib.decompressobj(wbits=_GZIP), rest
            if data:
                return data
        return b""


class _ZstdStream:
    """A zstd stream, with the one function of files that is used here."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    def read1(self, size: int) -> bytes:
        return cast(bytes, self._stream.read(min(size, _ZSTD_BYTES)))  # a cut file loses at most so much
