"""A folder of this machine or of an object store, with the few operations that a dataset needs.

Paths are POSIX strings relative to the folder. Every write is all or nothing: local files are written under a
temporary name, flushed to disk and renamed; an object becomes visible when its upload is complete. A dataset
is published by ``create_if_absent``. A request to an object store is repeated if it failed for a reason that
may pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.fs as pafs

from shardmill.infra.arguments import checked
from shardmill.infra.errors import NotFoundError, ObjectRefused, PublishConflict
from shardmill.infra.storage.leases import DEFAULT_TIMES, LeaseTimes, SeenHolder, lease, seen_holders
from shardmill.infra.storage.local import (
    TEMPORARY_PREFIX,
    create_file,
    file_writer,
    read_file_range,
    remove_temporary_files,
)
from shardmill.infra.storage.locations import below, public_location
from shardmill.infra.storage.locking import HeldLocks, HolderFile, HolderList, Lock, kernel_lock
from shardmill.infra.storage.objects.conditional import Bucket, ConditionalObjects, HolderObject
from shardmill.infra.storage.objects.hub import is_on_hub, not_writable
from shardmill.infra.storage.objects.retries import (
    ObjectReader,
    not_read,
    object_writer,
    other_files_named,
    reading,
    retry,
    upload,
    writing,
)
from shardmill.infra.storage.objects.stores import list_objects, open_filesystem

T = TypeVar("T")

_COPY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a listing: path relative to the storage, size (bytes), time of change (ns since 1970)."""

    path: str
    size_bytes: int
    mtime_ns: int


@checked
class Storage:
    """A folder of this machine or of an object store. Cheap to make; picklable by its location.

    A method that reads or writes raises ``StorageError`` where it cannot, and one that reads a single file
    raises ``NotFoundError`` where there is none.

    Attributes:
        uri: the place, for people and for comparison, without credentials and options.
        location: the argument with which ``at`` opens the same folder. It may hold credentials, so it is
            never shown or stored.
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        root: str,
        location: str,
        bucket: Bucket | None = None,
        locks: HeldLocks | None = None,
    ) -> None:
        self._fs = filesystem
        self._bucket = bucket
        self._locks = locks or HeldLocks()
        self._root = root.rstrip("/") or "/"
        self.location = location
        self.uri = public_location(location)

    @staticmethod
    def at(location: str | Path) -> Storage:
        """Return the folder at a local path or a URI (``s3``, ``gs``, ``az``, ``hf``). It may be missing.

        Raises:
            StorageError: the URI is malformed, or its kind of storage is not supported.
        """
        filesystem, root = open_filesystem(str(location))
        if isinstance(filesystem, pafs.LocalFileSystem):
            return Storage(filesystem, root, root)
        if is_on_hub(str(location)):
            return Storage(filesystem, root, str(location))  # read only
        bucket = Bucket(str(location), getattr(filesystem, "region", None))
        return Storage(filesystem, root, str(location), bucket)

    def __reduce__(self) -> tuple[Callable[[str], Storage], tuple[str]]:
        return Storage.at, (self.location,)

    def __repr__(self) -> str:
        return f"Storage({self.uri!r})"

    def child(self, *parts: str) -> Storage:
        """Return the folder at ``parts`` below this one."""
        tail = "/".join(parts)
        return Storage(
            self._fs, f"{self._root}/{tail}", below(self.location, tail), self._bucket, self._locks
        )

    @property
    def is_local(self) -> bool:
        """Tell whether this is a folder of this machine's own filesystem."""
        return isinstance(self._fs, pafs.LocalFileSystem)

    def local_path(self, path: str = "") -> Path | None:
        """Return the path of a file on this machine; None if the storage is an object store."""
        return Path(self._full(path)) if self.is_local else None

    def arrow_folder(self) -> tuple[pafs.FileSystem, str]:
        """Return Arrow's filesystem and the folder in it, for readers of Arrow that open files themselves."""
        return self._fs, self._root

    # -- reading ---------------------------------------------------------------------------------------

    def open_input(self, path: str) -> pa.NativeFile:
        """Return a seekable reader of the file."""
        if not self.is_local:
            return pa.PythonFile(self.open_object(path), mode="r")
        with self.reading(path):
            return self._fs.open_input_file(self._full(path))

    def open_object(self, path: str) -> ObjectReader:
        """Return a reader of an object; many threads may call its ``read_at``. Not for local storage."""
        with self.reading(path):
            if self._bucket is not None:
                self._bucket.check_credentials(self._fs, self._full(path))
            return ObjectReader(self._fs, self._full(path))

    def read_bytes(self, path: str) -> bytes:
        """Return the content of the whole file."""
        with self.open_input(path) as stream, self.reading(path):
            return cast(bytes, stream.read())

    def copy_to(self, path: str, target: BinaryIO) -> None:
        """Write the content of the file to a stream, a part at a time."""
        with self.open_input(path) as source:
            while True:
                with self.reading(path):
                    part = source.read(_COPY_BYTES)
                if not part:
                    return
                target.write(part)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` (bytes); fewer only if the file ends."""
        if self.is_local:
            with self.reading(path):
                return read_file_range(Path(self._full(path)), offset, length)
        with self.open_object(path) as reader, self.reading(path):
            return reader.read_at(length, offset)

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder is there."""
        return bool(self._info(path).type != pafs.FileType.NotFound)

    def size(self, path: str) -> int:
        """Return the size of the file (bytes)."""
        return self.entry(path).size_bytes

    def entry(self, path: str) -> FileEntry:
        """Return size and time of change of the file."""
        info = self._info(path)
        if info.type != pafs.FileType.File:
            raise NotFoundError(f"no such file: {self._describe(path)}")
        return FileEntry(path, int(info.size), int(info.mtime_ns or 0))

    def _info(self, path: str) -> pafs.FileInfo:
        with self.reading(path):
            return self._retry(lambda: self._fs.get_file_info(self._full(path)))

    def list_files(self, path: str = "", recursive: bool = True) -> list[FileEntry]:
        """Return the files below ``path``, sorted by path; none if the folder does not exist."""
        skip = len(self._root.rstrip("/")) + 1
        entries = [
            FileEntry(info.path[skip:], int(info.size), int(info.mtime_ns or 0))
            for info in self._list(path, recursive)
            if info.type == pafs.FileType.File and not info.base_name.startswith(TEMPORARY_PREFIX)
        ]
        return sorted(entries, key=lambda entry: entry.path)

    def list_folders(self, path: str = "") -> list[str]:
        """Return the names of the folders directly in ``path``, sorted; none if it does not exist."""
        infos = self._list(path, recursive=False)
        return sorted(info.base_name for info in infos if info.type == pafs.FileType.Directory)

    def _list(self, path: str, recursive: bool) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self._full(path), allow_not_found=True, recursive=recursive)
        with self.reading(path):
            found: list[pafs.FileInfo] = self._retry(lambda: list_objects(self._fs, selector))
            if not found and self._bucket is not None:
                self._bucket.check_is_there(self._fs)
        return found

    # -- writing ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def atomic_writer(self, path: str) -> Iterator[BinaryIO]:
        """Yield a binary writer (``write``, ``tell``); its file appears when the block ends without an error.

        Raises:
            StorageError: the file cannot be written (a full disk, a read-only folder), or the block failed to
                read or write another file.
        """
        full = self._full(path)
        writer = file_writer(Path(full)) if self.is_local else object_writer(partial(self._upload, path))
        with self._writing(path), writer as stream, other_files_named():
            yield stream

    def _upload(self, path: str, data: BinaryIO) -> None:
        if self._bucket is not None and self._bucket.has_own_uploads:
            self._bucket.upload(self._key(path), data)
        else:
            upload(self._fs, self._full(path), data)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write the whole file; readers see the old one or the new one."""
        with self.atomic_writer(path) as stream:
            stream.write(data)

    def create_if_absent(self, path: str, data: bytes) -> None:
        """Create the file with all of ``data``, unless it is there already: exactly one writer wins.

        Raises:
            PublishConflict: the file is there already.
            StorageError: it cannot be written, or the store does not support conditional writes.
        """
        try:
            with self._writing(path):
                if self.is_local:
                    create_file(Path(self._full(path)), data)
                else:
                    self._conditional().create(self._key(path), data)
        except FileExistsError as error:
            raise PublishConflict(
                f"{self._describe(path)} is there already: another writer published it first",
                "run the same command again; it plans on top of the version that won",
            ) from error

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if it is not there."""
        with self._writing(path), contextlib.suppress(FileNotFoundError):
            self._retry(lambda: self._fs.delete_file(self._full(path)))

    def delete_tree(self, path: str) -> None:
        """Remove a folder and all in it; nothing happens if it is not there."""
        with self._writing(path), contextlib.suppress(FileNotFoundError):
            self._retry(lambda: self._delete_folder(path))

    def _delete_folder(self, path: str) -> None:
        try:
            self._fs.delete_dir(self._full(path))
        except OSError:
            # Google's client says that a folder is not there with a plain OSError, as for any failure.
            if self.exists(path):
                raise

    def sweep(self, path: str = "") -> None:
        """Remove the temporary files that killed writers left below ``path``.

        Call it only while no other process writes there: it would remove the files of a living writer too. An
        object store has no such files.
        """
        folder = self.local_path(path)
        if folder is not None and folder.is_dir():
            remove_temporary_files(folder)

    # -- locks -----------------------------------------------------------------------------------------

    def exclusive_lock(
        self, path: str, purpose: str = "this work", *, times: LeaseTimes | None = None
    ) -> contextlib.AbstractContextManager[Lock]:
        """Hold the only lock on ``path``, a small file that stays behind.

        In an object store, and in a folder of this machine or its network when ``times`` are given, the lock
        is a lease (shardmill.infra.storage.leases): it expires when its holder vanishes, and a holder
        whose lock another process took can no longer write or remove anything through this storage, its
        parents and its children. Without ``times``, the kernel holds a local lock and releases it when the
        holder ends.

        Raises:
            LockedError: another process holds it.
            StorageError: the file cannot be written, or the store knows no conditional writes.
        """
        return self._lock(path, exclusive=True, purpose=purpose, times=times)

    def shared_lock(
        self, path: str, purpose: str = "this work", *, times: LeaseTimes | None = None
    ) -> contextlib.AbstractContextManager[Lock]:
        """Hold a lock on ``path`` that others may share. It and an exclusive lock exclude each other.

        Raises:
            LockedError: another process holds the exclusive lock.
            StorageError: the file cannot be written, or the store knows no conditional writes.
        """
        return self._lock(path, exclusive=False, purpose=purpose, times=times)

    @contextlib.contextmanager
    def _lock(self, path: str, *, exclusive: bool, purpose: str, times: LeaseTimes | None) -> Iterator[Lock]:
        with contextlib.ExitStack() as held:
            with self._writing(path):
                if self.is_local and times is None:
                    taken = kernel_lock(Path(self._full(path)), exclusive=exclusive, purpose=purpose)
                else:
                    taken = lease(
                        self._holder_list(path),
                        exclusive=exclusive,
                        purpose=purpose,
                        name=self._describe(path),
                        times=times or DEFAULT_TIMES,
                    )
                lock = held.enter_context(taken)
            held.enter_context(self._locks.holding(lock))
            yield lock

    def lease_holders(self, path: str) -> list[SeenHolder]:
        """Return the holders of a lease, also those whose lease has expired; none if its file is missing."""
        with self.reading(path):
            return seen_holders(self._holder_list(path), self._describe(path))

    def _holder_list(self, path: str) -> HolderList:
        if self.is_local:
            return HolderFile(Path(self._full(path)))
        return HolderObject(self._conditional(), self._key(path))

    # -- inside ----------------------------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _key(self, path: str) -> str:
        """The object's name in its bucket."""
        return self._full(path).partition("/")[2]

    def _retry(self, operation: Callable[[], T]) -> T:
        return operation() if self.is_local else retry(operation)

    def _conditional(self) -> ConditionalObjects:
        if self._bucket is None:
            raise not_writable(self.uri)
        return self._bucket.objects(self._key(""), self.uri)

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Turn errors of reading a file, such as those of an ``ObjectReader``, into errors that name it.

        Raises:
            NotFoundError: there is no such file. ObjectRefused: the store does not give this object, and
                still answers about the folder. StorageError: the storage cannot be read.
        """
        try:
            with reading(self._describe(path), self.location, is_local=self.is_local):
                yield
        except ObjectRefused as error:
            try:
                self._fs.get_file_info(self._root)
            except (OSError, pa.ArrowException) as refusal:
                raise not_read(self._describe(path), self.location, refusal, is_local=False) from error
            raise

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        self._locks.ensure_held()
        if is_on_hub(self.location):
            raise not_writable(self.uri)
        with writing(self._describe(path), self.location, is_local=self.is_local):
            yield

    def _describe(self, path: str) -> str:
        return f"{self.uri.rstrip('/')}/{path}" if path else self.uri
