"""A folder of staged shards that all processes of one machine share, within one budget of bytes.

::

    <folder>/.door                        locked to add a shard, or to open one
    <folder>/<dataset>/<sha256>.shard     a whole, verified shard
    <folder>/<dataset>/<sha256>.partial   one that is being fetched; it has its full length from the start

Locks are the kernel's (``flock``), so they go with their holder, however it ends:

- *Fetching*: the exclusive lock on a ``.partial``. One process fetches, the others wait; a ``.partial`` that
  nobody locks was left by a process that died. When it is whole and verified it is renamed.
- *In use*: a shared lock on a ``.shard``. Only files that can be locked exclusively are evicted.
- *The door*: shared to open a shard, exclusive to make room. Whoever needs room keeps the door until there is
  some: nobody opens shards meanwhile, and those in use become free one by one, so that room is found.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shardmill.infra.errors import StorageError
from shardmill.infra.storage.range_reader import Descriptor
from shardmill.training.reading.staging.file_locks import is_at, is_locked, locks, remove_unused

_WHOLE, _PARTIAL = ".shard", ".partial"
_POLL_SECONDS = 0.01
# A process that is suspended or hangs keeps its locks. The others give up after this time without progress.
STALL_SECONDS = 120.0

# Name of a staged shard -> steps until it is needed again; inf: not foreseen, negative: used a moment ago.
NextUse = Callable[[str], float]


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the folder, with its state when it was listed."""

    path: Path
    size_bytes: int
    mtime_ns: int

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


class StagedFolder:
    """The folder and its budget. Names are ``<dataset>/<sha256>``."""

    def __init__(self, folder: Path, budget_bytes: int, stall_seconds: float = STALL_SECONDS) -> None:
        """Make the folder if it does not exist.

        Raises:
            StorageError: the folder cannot be made.
        """
        self.folder = folder
        self.budget_bytes = budget_bytes
        self._stall_seconds = stall_seconds
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._failed(folder, error) from error

    def open(self, name: str, num_bytes: int) -> Descriptor | None:
        """Open a whole shard, which is in use while the descriptor lives; None if it is not staged.

        Raises:
            StorageError: another process keeps the door locked and shows no progress.
        """
        with self._door(fcntl.LOCK_SH):
            return self._in_use(self._path(name, _WHOLE), num_bytes)

    def claim(self, name: str) -> Claim | None:
        """Claim the right to fetch a shard; None if another process fetches it or it is staged already."""
        path = self._path(name, _PARTIAL)
        try:
            path.parent.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._failed(path, error) from error
        owned = locks(descriptor, fcntl.LOCK_EX) and is_at(descriptor, path)
        if not owned:
            os.close(descriptor)
            return None
        if self._path(name, _WHOLE).exists():
            path.unlink()
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        return Claim(path, path.with_suffix(_WHOLE), descriptor)

    def wait_for_other(self, name: str) -> None:
        """Wait until another process no longer fetches ``name``.

        Raises:
            StorageError: the other process shows no progress.
        """
        path, last, since = self._path(name, _PARTIAL), -1, time.monotonic()
        while True:
            try:
                found = path.stat().st_mtime_ns
            except FileNotFoundError:
                return
            if not is_locked(path):
                return
            if found != last:
                last, since = found, time.monotonic()
            self._check_stall(since, f"another process fetches {path}, and shows no progress")
            time.sleep(_POLL_SECONDS)

    def make_room(
        self, claim: Claim, num_bytes: int, next_use: NextUse, *, before: float | None = None
    ) -> bool:
        """Reserve room for a shard by evicting the ones needed latest. Return whether there is room.

        Args:
            claim: the claim of the shard.
            num_bytes: the size of the shard.
            next_use: tells when staged shards are needed again.
            before: steps until this shard is needed; shards that are needed as soon are not evicted for it.
                None: it is needed now, so wait until there is room.

        Raises:
            StorageError: the shard is needed now, and there is still no room.
        """
        with self._door(fcntl.LOCK_EX):
            since = time.monotonic()
            while not self._evict_for(num_bytes, next_use, before):
                if before is not None:
                    return False
                self._check_stall(
                    since, f"{num_bytes:,} bytes more do not fit into {self.folder}: all in it is in use"
                )
                time.sleep(_POLL_SECONDS)
            # The length counts, though nothing is written yet: others see the room as taken.
            os.ftruncate(claim.descriptor, num_bytes)
            return True

    def has(self, name: str) -> bool:
        """Return whether a shard is staged."""
        return self._path(name, _WHOLE).exists()

    def discard(self, name: str) -> None:
        """Remove a damaged shard, in use or not."""
        self._path(name, _WHOLE).unlink(missing_ok=True)

    def used_bytes(self) -> int:
        """Return the size of all shards that are staged or being fetched (bytes)."""
        with self._door(fcntl.LOCK_SH):  # nothing is evicted meanwhile
            return sum(file.size_bytes for file in self._files())

    def _evict_for(self, num_bytes: int, next_use: NextUse, before: float | None) -> bool:
        files = self._files()
        excess = sum(file.size_bytes for file in files) + num_bytes - self.budget_bytes
        candidates = [file for file in files if file.path.suffix == _WHOLE]
        uses = {file.path: next_use(file.name) for file in candidates}
        # Evict shards that no known step needs, then those used a moment ago, then those needed latest.
        over = {path: uses[path] if uses[path] >= 0 else sys.float_info.max for path in uses}
        candidates.sort(key=lambda file: (-over[file.path], file.mtime_ns))
        if before is not None:
            candidates = [file for file in candidates if uses[file.path] > before]
        orphans = [file for file in files if file.path.suffix == _PARTIAL]
        for file in [*orphans, *candidates]:
            if excess <= 0:
                break
            if remove_unused(file.path):
                excess -= file.size_bytes
            elif before is not None and file.path.suffix == _WHOLE:
                # The shard needed latest is still in use. Evicting one that is needed sooner, for a shard
                # that can wait, would only mean to fetch that one again.
                break
        return excess <= 0

    def _files(self) -> list[_File]:
        """List each shard once. One that is renamed meanwhile may be seen under either name, or both."""
        found: dict[str, _File] = {}
        for suffix in (_PARTIAL, _WHOLE):
            for path in self.folder.glob(f"*/*{suffix}"):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    file = _File(path, status.st_size, status.st_mtime_ns)
                    found[file.name] = file
        return list(found.values())

    def _in_use(self, path: Path, num_bytes: int) -> Descriptor | None:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(path, error) from error
        held = Descriptor(descriptor)
        if not locks(descriptor, fcntl.LOCK_SH) or not is_at(descriptor, path):
            return None  # it is being evicted
        if os.fstat(descriptor).st_size != num_bytes:
            path.unlink(missing_ok=True)
            return None
        os.utime(descriptor)  # shards that nobody needs soon are evicted in the order of this time
        return held

    @contextlib.contextmanager
    def _door(self, kind: int) -> Iterator[None]:
        path = self.folder / ".door"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._failed(path, error) from error
        try:
            since = time.monotonic()
            while not locks(descriptor, kind):
                # Twice the time, since whoever makes room may wait that long itself.
                self._check_stall(since + self._stall_seconds, f"another process keeps {path} locked")
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def _check_stall(self, since: float, what: str) -> None:
        if time.monotonic() - since > self._stall_seconds:
            raise StorageError(
                f"{what} (for {self._stall_seconds:g} seconds)",
                "end the processes that are stopped or hang, raise reading.staging_bytes, or give this run a "
                "reading.staging_dir of its own",
            )

    def _path(self, name: str, suffix: str) -> Path:
        return self.folder / f"{name}{suffix}"

    def _failed(self, path: Path, error: OSError) -> StorageError:
        return StorageError(
            f"cannot stage into {path}: {error.strerror or error}",
            "check reading.staging_dir: free space and permissions",
        )


class Claim:
    """The right to fetch one shard. It ends with ``commit``, ``give_up`` or an error within its context."""

    def __init__(self, path: Path, final: Path, descriptor: int) -> None:
        self._path = path
        self._final = final
        self.descriptor = descriptor

    def __enter__(self) -> None:
        """Do nothing: the claim was made before."""

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.give_up()

    def write(self, data: memoryview, offset: int) -> None:
        """Write part of the shard.

        Raises:
            StorageError: the disk is full or broken.
        """
        try:
            while data:
                written = os.pwrite(self.descriptor, data, offset)
                data, offset = data[written:], offset + written
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise StorageError(
                f"cannot write {self._path}: {error.strerror}",
                "lower reading.staging_bytes, or free space"
                if full
                else "check the disk of reading.staging_dir",
            ) from error

    def commit(self) -> Descriptor | None:
        """Make the shard visible to all processes, in use by the caller; None if it was evicted at once."""
        # Not flushed to the disk: after a power cut the checksums of the records reveal any loss, and
        # the shard is fetched again.
        self._path.rename(self._final)
        held = Descriptor(self.descriptor)
        if not locks(self.descriptor, fcntl.LOCK_SH) or not is_at(self.descriptor, self._final):
            return None
        return held

    def give_up(self) -> None:
        """Give the claim up, so that others can fetch the shard."""
        self._path.unlink(missing_ok=True)
        os.close(self.descriptor)
