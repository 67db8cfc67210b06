"""A folder on any filesystem that ``pyarrow.fs`` speaks, with the few writes a dataset needs.

Paths are POSIX strings relative to the folder. Every write is all or nothing: local files are
written under a temporary name, flushed to disk and renamed; an object store makes an object visible
only when its upload is complete. A dataset is published by ``create_if_absent``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.fs as pafs

from infra.errors import LockedError, NotFoundError, PublishConflict, StorageError
from infra.locations import below, public_location, without_secrets

_TEMPORARY_PREFIX = ".partial-"  # no listing of ours shows these names; a crash may leave some behind
_BUFFER_BYTES = 256 << 10  # written at a time: images of 25 kB one by one cost the system twice as much


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a listing: its path relative to the storage, size (bytes) and time of change (ns)."""

    path: str
    size_bytes: int
    mtime_ns: int


def _filesystem(location: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem and the path in it of a URI or a local path."""
    if "://" not in location:
        return pafs.LocalFileSystem(), str(Path(location).expanduser().absolute())
    try:
        filesystem, path = pafs.FileSystem.from_uri(location)
    except (pa.ArrowException, OSError, ValueError) as error:
        # Not `from error`: its text may hold the credentials of the URI.
        scheme = location.partition("://")[0]
        raise StorageError(
            f"cannot open storage {public_location(location)}: {without_secrets(str(error), location)}",
            f"check the URI and the credentials of {scheme}://",
        ) from None
    return filesystem, path


class Storage:
    """A folder on a filesystem. Cheap to make; picklable by its location.

    Attributes:
        uri: the place, for people and for comparison: without credentials and options.
        location: what ``at`` opens the same folder with. May hold credentials: it is never shown or stored.
    """

    def __init__(self, filesystem: pafs.FileSystem, root: str, location: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/") or "/"
        self.location = location
        self.uri = public_location(location)

    @staticmethod
    def at(location: str | Path) -> Storage:
        """The folder at a local path, ``file://``, ``s3://`` or ``gs://`` URI. It need not exist yet.

        Raises:
            StorageError: the URI is wrong, or of no storage that is known here.
        """
        filesystem, root = _filesystem(str(location))
        local = isinstance(filesystem, pafs.LocalFileSystem)
        return Storage(filesystem, root, root if local else str(location))

    def __reduce__(self) -> tuple[Callable[[str], Storage], tuple[str]]:
        return Storage.at, (self.location,)

    def __repr__(self) -> str:
        return f"Storage({self.uri!r})"

    def child(self, *parts: str) -> Storage:
        """The folder at ``parts`` below this one."""
        tail = "/".join(parts)
        return Storage(self._fs, f"{self._root}/{tail}", below(self.location, tail))

    @property
    def is_local(self) -> bool:
        """Whether this is a folder of this machine's own filesystem."""
        return isinstance(self._fs, pafs.LocalFileSystem)

    def local_path(self, path: str = "") -> Path | None:
        """The file's path on this machine, or None where the storage is elsewhere."""
        return Path(self._full(path)) if self.is_local else None

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    # -- reading ---------------------------------------------------------------------------------------

    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable reader of the file.

        Raises:
            NotFoundError: there is no such file. StorageError: it cannot be read.
        """
        try:
            return self._fs.open_input_file(self._full(path))
        except FileNotFoundError as error:
            raise NotFoundError(f"no such file: {self._describe(path)}") from error
        except OSError as error:
            raise StorageError(f"cannot read {self._describe(path)}: {error}") from error

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        with self.open_input(path) as stream:
            return cast(bytes, stream.read())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``; fewer only where the file ends."""
        if not self.is_local:
            with self.open_input(path) as stream:
                return cast(bytes, stream.read_at(length, offset))
        try:
            descriptor = os.open(self._full(path), os.O_RDONLY)
        except FileNotFoundError as error:
            raise NotFoundError(f"no such file: {self._describe(path)}") from error
        except OSError as error:
            raise StorageError(f"cannot read {self._describe(path)}: {error}") from error
        try:
            return os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return bool(self._info(path).type != pafs.FileType.NotFound)

    def size(self, path: str) -> int:
        """Size of the file (bytes).

        Raises:
            NotFoundError: there is no such file.
        """
        info = self._info(path)
        if info.type != pafs.FileType.File:
            raise NotFoundError(f"no such file: {self._describe(path)}")
        return int(info.size)

    def _info(self, path: str) -> pafs.FileInfo:
        try:
            return self._fs.get_file_info(self._full(path))
        except OSError as error:
            raise StorageError(f"cannot look at {self._describe(path)}: {error}") from error

    def list_files(self, path: str = "", recursive: bool = True) -> list[FileEntry]:
        """The files below ``path``, sorted by path; empty where the folder does not exist."""
        selector = pafs.FileSelector(self._full(path), allow_not_found=True, recursive=recursive)
        try:
            infos = self._fs.get_file_info(selector)
        except OSError as error:
            raise StorageError(f"cannot list {self._describe(path)}: {error}") from error
        skip = len(self._root.rstrip("/")) + 1
        entries = [
            FileEntry(info.path[skip:], int(info.size), int(info.mtime_ns or 0))
            for info in infos
            if info.type == pafs.FileType.File and not info.base_name.startswith(_TEMPORARY_PREFIX)
        ]
        return sorted(entries, key=lambda entry: entry.path)

    def list_folders(self, path: str = "") -> list[str]:
        """Names of the folders directly in ``path``, sorted."""
        selector = pafs.FileSelector(self._full(path), allow_not_found=True)
        try:
            infos = self._fs.get_file_info(selector)
        except OSError as error:
            raise StorageError(f"cannot list {self._describe(path)}: {error}") from error
        return sorted(info.base_name for info in infos if info.type == pafs.FileType.Directory)

    # -- writing ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def atomic_writer(self, path: str) -> Iterator[BinaryIO]:
        """A binary writer (``write``, ``tell``) whose file appears whole when the block ends well.

        Raises:
            StorageError: the file cannot be written (a full disk, a read-only folder).
        """
        writer = self._local_writer if self.is_local else self._object_writer
        try:
            with writer(path) as stream:
                yield stream
        except OSError as error:
            raise self._cannot_write(path, error) from error

    def _cannot_write(self, path: str, error: OSError) -> StorageError:
        return StorageError(
            f"cannot write {self._describe(path)}: {error.strerror or error}",
            "check free space and permissions, then run the same command again: it goes on where it was",
        )

    @contextlib.contextmanager
    def _local_writer(
        self, path: str, place: Callable[[Path, Path], object] = os.replace
    ) -> Iterator[BinaryIO]:
        """Write under a temporary name beside ``path``; ``place(temporary, final)`` makes it visible."""
        final = Path(self._full(path))
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = final.parent / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        try:
            with partial.open("wb", _BUFFER_BYTES) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            place(partial, final)
            _sync_folder(final.parent)
        finally:
            partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _object_writer(self, path: str) -> Iterator[BinaryIO]:
        # Closing the stream is what completes an upload, so a failed block must not reach close().
        # Without compression=None, Arrow would compress what is called .gz once more.
        stream = self._fs.open_output_stream(self._full(path), compression=None)
        try:
            yield cast(BinaryIO, stream)
        except BaseException:
            with contextlib.suppress(AttributeError, OSError):
                cast(Any, stream).abort()
            raise
        stream.close()

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write the whole file; readers see the old one or the new one."""
        with self.atomic_writer(path) as stream:
            stream.write(data)

    def create_if_absent(self, path: str, data: bytes) -> None:
        """Create the file with all of ``data``, unless it is there already: exactly one writer wins.

        Raises:
            PublishConflict: the file is there already.
        """
        conflict = PublishConflict(
            f"{self._describe(path)} is there already: another writer published it first",
            "run the same command again; it plans on top of the version that won",
        )
        if not self.is_local:
            # pyarrow has no conditional put yet; on object stores one writer at a time is the user's duty.
            if self.exists(path):
                raise conflict
            self.write_atomic(path, data)
            return

        def link(source: Path, final: Path, descriptor: int | None = None) -> None:
            # link() fails where the name exists, which rename() would silently replace.
            try:
                os.link(source, final, src_dir_fd=descriptor)
            except FileExistsError as error:
                raise conflict from error

        try:
            if not _create_unnamed(Path(self._full(path)), data, link):
                with self._local_writer(path, place=link) as stream:
                    stream.write(data)
        except OSError as error:
            raise self._cannot_write(path, error) from error

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens where it is not there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._full(path))

    def delete_tree(self, path: str) -> None:
        """Remove a folder and all in it; nothing happens where it is not there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_dir(self._full(path))

    def sweep(self, path: str = "") -> None:
        """Remove the temporary files that killed writers left below ``path``.

        For the only process that writes there: the file of a living writer would go too. An object store
        leaves none.
        """
        folder = self.local_path(path)
        if folder is not None and folder.is_dir():
            for partial in folder.rglob(f"{_TEMPORARY_PREFIX}*"):
                partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def exclusive_lock(self, path: str, purpose: str = "this work") -> Iterator[None]:
        """Hold the only lock on ``path`` (a small file). The kernel releases it when the holder dies.

        The file stays behind: removing it would let one process lock the removed file and another a new one.
        On object stores there is no such lock and none is taken: there ``create_if_absent`` alone decides.

        Raises:
            LockedError: another process holds it.
        """
        with self._locked(path, fcntl.LOCK_EX, purpose) as stream:
            if stream is not None:
                stream.truncate(0)
                stream.write(f"{os.getpid()}\n")
                stream.flush()
            yield

    @contextlib.contextmanager
    def shared_lock(self, path: str, purpose: str = "this work") -> Iterator[None]:
        """Hold a lock on ``path`` that others may share, and that an exclusive one excludes, and it them.

        Raises:
            LockedError: another process holds the exclusive one.
        """
        with self._locked(path, fcntl.LOCK_SH, purpose):
            yield

    @contextlib.contextmanager
    def _locked(self, path: str, kind: int, purpose: str) -> Iterator[IO[str] | None]:
        """The lock's file, locked; None where there are no locks."""
        if not self.is_local:
            yield None
            return
        with self._open_lock(path) as stream:
            try:
                fcntl.flock(stream, kind | fcntl.LOCK_NB)
            except BlockingIOError as error:
                stream.seek(0)
                holder = stream.read().strip() or "unknown"
                raise LockedError(
                    f"another process (pid {holder}) is busy with {purpose}; it locks {self._describe(path)}",
                    "wait for it to end, or stop it",
                ) from error
            yield stream

    def _open_lock(self, path: str) -> IO[str]:
        file = Path(self._full(path))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            return file.open("a+")
        except OSError as error:
            raise self._cannot_write(path, error) from error

    def _describe(self, path: str) -> str:
        return f"{self.uri.rstrip('/')}/{PurePosixPath(path)}" if path else self.uri


def _create_unnamed(final: Path, data: bytes, link: Callable[..., None]) -> bool:
    """Create a file that has no name until it is whole, so that a writer that is killed leaves nothing.

    Args:
        final: the file.
        data: all of it.
        link: ``os.link`` with ``src_dir_fd`` third.

    Returns:
        False where the filesystem has no such files: nothing was done.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(final.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except (AttributeError, OSError):  # not Linux, or not on this filesystem; what else is wrong shows again
        return False
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)
        # With a descriptor this is linkat(2), which follows the link, as open(2) says under O_TMPFILE.
        link(Path(f"/proc/self/fd/{descriptor}"), final, descriptor)
    _sync_folder(final.parent)
    return True


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
