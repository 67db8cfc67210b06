"""The folder of caches on this machine. Each file is made once, by one process, and kept.

A cache's name has the digest of the shards whose images it keeps, and of the view, so other versions never
read it. Who reads a cache holds a shared lock beside it; who makes or removes it, the exclusive one. The
kernel takes locks back from a process that dies, and a file appears only when it is whole. What does not fit
any more goes, the least recently used first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import LockedError, StorageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config.reading import CacheForm
from shardmill.training.reading.cache.stores import DiskStore, write_store

# Increase this number when the same shards would be cached as other bytes.
_REVISION = 1
_SUFFIX, _PARTIAL_SUFFIX = ".cache", ".partial"
_ROOM = "free disk space, raise reading.cache_bytes, or set reading.cache_dir to another disk"
_RETRY_SECONDS = 0.1
_SPARE_BYTES = 64 << 20  # left free on the disk

Images = Iterable[tuple[bytes | memoryview, int]]


class CacheFolder:
    """The caches on disk, of all datasets."""

    def __init__(self, path: Path | str | None = None) -> None:
        """``path``: default ``$SHARDMILL_CACHE`` or ``~/.cache/shardmill``."""
        default = os.environ.get("SHARDMILL_CACHE") or Path.home() / ".cache" / "shardmill"
        self.path = Path(path or default).expanduser().absolute()
        self._storage = Storage.at(self.path)

    def budget(self, asked: int | None) -> int:
        """Return the bytes that all caches may take; by default half of the free space and of their own."""
        if asked is not None:
            return asked
        return (self._free_bytes() + sum(file.stat().st_size for file in self._files())) // 2

    @contextlib.contextmanager
    def opened(
        self, name: str, num_images: int, num_bytes: int, budget: int, make: Callable[[], Images]
    ) -> Iterator[DiskStore]:
        """Open a cache, making it first if it does not exist. It is not removed while the block runs.

        Args:
            name: the name of the cache (``cache_name``).
            num_images: the number of its images.
            num_bytes: about its size.
            budget: the most that all caches together may take (bytes).
            make: returns the images, by ordinal.

        Raises:
            StorageError: there is no room for it.
        """
        while True:
            with contextlib.ExitStack() as held:
                if self._lock(held, self._storage.shared_lock, name) and self._file(name).is_file():
                    store = DiskStore(self._file(name), num_images)
                    os.utime(self._file(name))
                    yield store
                    return
            with contextlib.ExitStack() as held:
                if self._lock(held, self._storage.exclusive_lock, name):
                    if not self._file(name).is_file():
                        self._make(name, num_bytes, budget, make)
                    continue
            time.sleep(_RETRY_SECONDS)

    def _lock(self, held: contextlib.ExitStack, lock: Callable[..., object], name: str) -> bool:
        try:
            held.enter_context(lock(f"{name}.lock", f"the cache {name}"))  # type: ignore[arg-type]
        except LockedError:
            return False
        return True

    def _make(self, name: str, num_bytes: int, budget: int, make: Callable[[], Images]) -> None:
        self._make_room(num_bytes, budget)
        started = time.monotonic()
        # Only the holder of the lock writes this file, so the rest of a killed process is overwritten.
        partial = self.path / f"{name}{_PARTIAL_SUFFIX}"
        try:
            with partial.open("wb") as file:
                write_store(file, make())
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._file(name))
        except OSError as error:
            raise StorageError(f"cannot write {partial}: {error.strerror}", _ROOM) from error
        finally:
            partial.unlink(missing_ok=True)
        size, seconds = self._file(name).stat().st_size, time.monotonic() - started
        events.log(f"cached {size:,} bytes in {self._file(name)} in {seconds:.1f} s")

    def _make_room(self, num_bytes: int, budget: int) -> None:
        """Remove unused caches, the least recently used first, until there is room.

        Raises:
            StorageError: there is none.
        """
        self._remove_leftovers()
        others = sorted(self._files(), key=lambda file: file.stat().st_mtime_ns)
        taken = sum(file.stat().st_size for file in others)
        while others and (taken + num_bytes > budget or self._free_bytes() < num_bytes + _SPARE_BYTES):
            file = others.pop(0)
            size = file.stat().st_size
            if self._remove(file):
                taken -= size
        if taken + num_bytes > budget or self._free_bytes() < num_bytes + _SPARE_BYTES:
            raise StorageError(
                f"no room for a cache of {num_bytes:,} bytes in {self.path}: {self._free_bytes():,} are free "
                f"there, and caches in use take {taken:,} of {budget:,}",
                _ROOM,
            )

    def _remove(self, file: Path) -> bool:
        """Remove a cache, unless somebody reads it."""
        with contextlib.ExitStack() as held:
            if not self._lock(held, self._storage.exclusive_lock, file.stem):
                return False
            file.unlink(missing_ok=True)
        return True

    def _remove_leftovers(self) -> None:
        """Remove the partial files of killed processes, whose locks are free."""
        for partial in self.path.glob(f"*{_PARTIAL_SUFFIX}"):
            self._remove(partial)

    def _files(self) -> list[Path]:
        return list(self.path.glob(f"*{_SUFFIX}"))

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{_SUFFIX}"

    def _free_bytes(self) -> int:
        place = next(folder for folder in (self.path, *self.path.parents) if folder.exists())
        return shutil.disk_usage(place).free


def cache_name(version: DatasetVersion, split: str, form: CacheForm) -> str:
    """Return the name of a cache, made of its content and the digest of the shards."""
    shards = [shard.sha256 for shard in version.shards(split)]
    content = {"revision": _REVISION, "form": form, "shards": shards}
    digest = digest_of(content | version.describe_view())
    return f"{version.name}-{split}-{form}-{digest}"
