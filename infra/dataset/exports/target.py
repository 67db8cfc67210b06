"""The target of an export: files appear when they are whole, and finished parts are not written again.

On this machine the files are made in a hidden folder beside the destination, ``.NAME.exporting``, which is
renamed at the end. In an object store they appear under the destination, each when it is complete, and the
summary ``export.json`` is the last: an export without it is not complete. After each part a note with the
checksums of its files is left in ``.shardmill/``; an export that is run again skips parts with a note.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from shardmill.infra.dataset.exports.parts import Part, Plan
from shardmill.infra.errors import GO_ON, NotFoundError, StorageError, UsageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

SUMMARY_FILE, CHECKSUMS_FILE = "export.json", "checksums.sha256"
_NOTES, _LOCK, _DIGEST = ".shardmill", ".shardmill/lock", ".shardmill/digest"
_OTHER_NAME = "name a folder that does not exist yet, or remove it"


@dataclass(frozen=True, slots=True)
class FileMade:
    """One file of an export: its path in the destination, size (bytes) and SHA-256."""

    path: str
    num_bytes: int
    sha256: str


class _HashingWriter(io.RawIOBase):
    """Counts and hashes what passes to a stream, which it does not close."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self._sha256 = hashlib.sha256()
        self.num_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sha256.update(view)
        self._stream.write(view)
        self.num_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        return self.num_bytes

    def writable(self) -> bool:
        return True

    def made(self, path: str) -> FileMade:
        return FileMade(path, self.num_bytes, self._sha256.hexdigest())


class PartFiles:
    """Writes the files of one part, and remembers them."""

    def __init__(self, storage: Storage, *, are_links: bool = False) -> None:
        self._storage = storage
        self.are_links = are_links  # decided by ``Format.links``
        self.made: list[FileMade] = []

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[_HashingWriter]:
        """Open a file of the export for writing.

        Raises:
            StorageError: it cannot be written.
        """
        local = self._storage.local_path(path)
        with contextlib.ExitStack() as ends:
            if local is None:
                stream = ends.enter_context(self._storage.atomic_writer(path))
            else:
                # In a hidden folder; a part without a note is written again, so no rename is needed.
                ends.enter_context(_reported(local))
                local.parent.mkdir(parents=True, exist_ok=True)
                stream = ends.enter_context(local.open("wb"))
            writer = _HashingWriter(stream)
            yield writer
        self.made.append(writer.made(path))

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file."""
        with self.create(path) as stream:
            stream.write(data)

    def link(self, path: str, to: Path, num_bytes: int, sha256: str) -> None:
        """Make a symbolic link to a file of this machine whose size and SHA-256 are known.

        Raises:
            StorageError: it cannot be made.
        """
        local = self._storage.local_path(path)
        assert local is not None, "links are for exports on this machine"
        try:
            local.unlink(missing_ok=True)
            local.symlink_to(to)
        except OSError as error:
            raise StorageError(
                f"cannot link {local} to {to}: {error.strerror}", "write the shards instead: --copy"
            ) from error
        self.made.append(FileMade(path, num_bytes, sha256))


class Target:
    """The destination of one export."""

    def __init__(self, destination: str | Path) -> None:
        self.destination = Storage.at(destination)
        self._final = self.destination.local_path()
        if self._final is None:
            self.storage = self.destination
        else:
            self.storage = Storage.at(self._final.parent / f".{self._final.name}.exporting")

    def finished(self, plan: Plan) -> dict[str, Any] | None:
        """Return the summary of the same export if it is there already; None if there is nothing.

        Raises:
            UsageError: something else is there.
        """
        if self._final is not None and not (self._final.exists() or self._final.is_symlink()):
            return None
        found = self._summary(self.destination)
        if found is not None and found.get("digest") == plan.digest:
            return found
        if self._final is not None:
            raise UsageError(f"{self._final} is there already", _OTHER_NAME)
        if found is not None or (self.destination.list_files() and self._begun() != plan.digest):
            raise UsageError(f"{self.destination.uri} holds other files already", "name an empty place")
        return None

    @contextlib.contextmanager
    def opened(self, plan: Plan) -> Iterator[None]:
        """Hold the only lock on the work, and remove the rest of another export.

        Raises:
            LockedError: another process exports to the same place.
        """
        with _reported(self._final) if self._final else contextlib.nullcontext():
            local = self.storage.local_path()
            if local is not None:
                (local / _NOTES).mkdir(parents=True, exist_ok=True)
        with self.storage.exclusive_lock(_LOCK, purpose="the same export"):
            if self._begun() != plan.digest:
                self._clear()
                self.storage.write_atomic(_DIGEST, plan.digest.encode("ascii"))
            yield

    def known(self, part: Part) -> list[FileMade] | None:
        """Return the files of a part that an earlier process finished; None: it is to be done."""
        try:
            note = json.loads(self.storage.read_bytes(f"{_NOTES}/{part.stem}.json"))
            files = [FileMade(**file) for file in note]
            whole = all(self.storage.size(file.path) == file.num_bytes for file in files)
        except (NotFoundError, ValueError, TypeError):  # a note that a power cut emptied counts as none
            return None
        return files if whole else None

    def note(self, part: Part, files: list[FileMade]) -> None:
        """Remember that a part is finished."""
        note = dump_json([asdict(file) for file in files])
        self.storage.write_atomic(f"{_NOTES}/{part.stem}.json", note.encode("ascii"))

    def complete(self, summary: dict[str, Any]) -> None:
        """Write the summary and make the export visible.

        Raises:
            StorageError: something cannot be written, or the destination appeared meanwhile.
        """
        data = (dump_json(summary, indent=1, ensure_ascii=True) + "\n").encode("ascii")
        self.storage.write_atomic(SUMMARY_FILE, data)
        self.storage.delete_tree(_NOTES)
        if self._final is not None:
            local = self.storage.local_path()
            assert local is not None
            os.sync()  # the files were written without waiting for the disk
            try:
                local.rename(self._final)  # refused if a folder with content appeared meanwhile
            except OSError as error:
                raise _storage_error(error, self._final) from error

    def clear_lock(self) -> None:
        """Remove the lock that stays in an object store after it is released."""
        if self._final is None:
            self.storage.delete_tree(_NOTES)

    def _clear(self) -> None:
        """Remove everything but the lock."""
        local = self.storage.local_path()
        if local is not None:  # folders, which an object store does not have
            for name in set(self.storage.list_folders()) - {_NOTES}:
                shutil.rmtree(local / name)
        for entry in self.storage.list_files():
            if entry.path != _LOCK:
                self.storage.delete(entry.path)

    def discard(self) -> None:
        """Remove what was written, after an error that running again cannot mend."""
        if self._final is not None:
            local = self.storage.local_path()
            assert local is not None
            shutil.rmtree(local, ignore_errors=True)

    def _begun(self) -> str | None:
        try:
            return self.storage.read_bytes(_DIGEST).decode("ascii", "replace")
        except NotFoundError:
            return None

    def _summary(self, storage: Storage) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(storage.read_bytes(SUMMARY_FILE))
        except (NotFoundError, StorageError, ValueError):
            return None
        return found if isinstance(found, dict) else None


_REMEDIES = {
    errno.EEXIST: _OTHER_NAME,
    errno.ENOTEMPTY: _OTHER_NAME,
    errno.ENOTDIR: _OTHER_NAME,
    errno.ENOSPC: f"free space on the disk; {GO_ON}",
    errno.EDQUOT: f"free space within your quota; {GO_ON}",
}


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _storage_error(error, path) from error


def _storage_error(error: OSError, path: Path) -> StorageError:
    remedy = _REMEDIES.get(error.errno or 0, f"check that files can be written in {path.parent}")
    return StorageError(f"cannot write {path}: {error.strerror or error}", remedy)
