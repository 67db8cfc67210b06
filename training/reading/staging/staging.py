"""Stage shards of an object store: copy them to this machine ahead of use, nearest need first.

A reader asks for a shard as if it were a local file. If it is staged, the reader gets the open file; if not,
the asking thread fetches it. Background threads (``prefetch``) fetch the shards of the next steps, nearest
first, and evict the shards that are needed latest, within the budget. Every shard is checked by size and
SHA-256 before it is used. Processes of one machine that stage into the same folder share its shards and its
budget (``folder``).
"""

from __future__ import annotations

import atexit
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import descriptor_sha256
from shardmill.infra.errors import ConfigError, ShardmillError
from shardmill.infra.format.contract import Shard
from shardmill.infra.storage.range_reader import Descriptor
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.order import Order
from shardmill.training.reading.records.split_table import SplitTable
from shardmill.training.reading.staging.fetching import fetch_shard
from shardmill.training.reading.staging.folder import STALL_SECONDS, Claim, StagedFolder
from shardmill.training.reading.staging.prefetch import PrefetchActions, Prefetcher
from shardmill.training.reading.staging.shard_lookahead import StepRange, least_budget

# An open shard is released after this time, in use or not, and opened anew, so that other processes can evict
# it.
_HELD_SECONDS = 0.5

_Held = dict[str, tuple[Descriptor, float]]


def staging_for(version: DatasetVersion, settings: ReadingSettings) -> Staging | None:
    """Return the staging that the settings ask for; None if shards are local or no folder is set.

    Raises:
        ConfigError: the budget cannot hold the largest shard. StorageError: the folder cannot be made.
    """
    if settings.staging_dir is None or version.storage.is_local:
        return None
    return Staging(version, Path(settings.staging_dir).expanduser().absolute(), settings.staging_bytes)


class Staging:
    """The staged shards of one version. Safe for many threads; pickled as its settings."""

    def __init__(
        self,
        version: DatasetVersion,
        folder: Path,
        budget_bytes: int | None = None,
        *,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        """Open the folder.

        Args:
            version: the dataset version.
            folder: the folder to copy to; it need not exist yet.
            budget_bytes: the most that the folder may hold, over all datasets and processes; default: half of
                the free space of its disk, counting files that are staged already.
            stall_seconds: how long to wait for another process that shows no progress.

        Raises:
            ConfigError: the budget cannot hold the largest shard. StorageError: the folder cannot be made.
        """
        self._version = version
        self._asked = (version, folder, budget_bytes)
        self._shards = {shard.path: shard for shard in version.manifest.shards}
        self._paths = {self._name(path): path for path in self._shards}
        self.staged = StagedFolder(folder, budget_bytes or 0, stall_seconds)
        if budget_bytes is None:
            self.staged.budget_bytes = (shutil.disk_usage(folder).free + self.staged.used_bytes()) // 2
        self._check_largest()
        self._start()

    def _start(self) -> None:
        self._held: _Held = {}
        self._failed: set[str] = set()
        self._reported: tuple[int, int | None] | None = None
        self._expected: frozenset[str] = frozenset()
        self._expected_fit = False
        self._lock = threading.Lock()
        self.num_fetched = 0
        actions = PrefetchActions(self._prepare_ahead, self._is_staged, self._tick)
        self._prefetcher = Prefetcher(self.staged.budget_bytes, actions)
        _stagings.add(self)

    def __reduce__(self) -> tuple[type[Staging], tuple[DatasetVersion, Path, int | None]]:
        return Staging, self._asked

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Read ``length`` bytes of a shard from ``offset``; fewer only at its end."""
        shard = self.open_local(path)  # the name keeps it open: other threads may let go of it
        return os.pread(shard.fileno(), length, offset)

    def open_local(self, path: str) -> Descriptor:
        """Open a staged shard, fetching it first if it is missing. It is in use while the descriptor lives.

        Raises:
            CorruptDataError: the object is missing or damaged.
            StorageError: it cannot be fetched, or there is no room for it.
        """
        held = self._held.get(path)
        if held is not None and time.monotonic() - held[1] < _HELD_SECONDS:
            return held[0]
        shard = self._shards[path]
        del held
        self._held.pop(path, None)
        found = self._opened(shard)
        self._held[path] = found, time.monotonic()
        self._prefetcher.start()
        return found

    def _opened(self, shard: Shard) -> Descriptor:
        name = self._name(shard.path)
        while True:
            found = self.staged.open(name, shard.num_bytes) or self._fetched(shard)
            if found is not None:
                return found
            self.staged.wait_for_other(name)

    def discard_damaged(self, path: str) -> bool:
        """Discard the staged copy of a shard if it is damaged. Return whether it was."""
        found = self.staged.open(self._name(path), self._shards[path].num_bytes)
        if found is None:
            return False
        if descriptor_sha256(found.fileno()) == self._shards[path].sha256:
            return False
        events.log(f"the staged copy of {path} was damaged; it is fetched anew", level="warning")
        self.staged.discard(self._name(path))
        self._held.pop(path, None)
        return True

    # -- fetching --------------------------------------------------------------------------------------

    def prefetch(self, order: Order, table: SplitTable, start: int, stop: int) -> None:
        """Fetch the shards of the steps ``start`` to ``stop`` (epoch * steps_per_epoch + step) ahead of use.

        Raises:
            ConfigError: the budget cannot hold the shards of a few neighbouring steps.
        """
        steps = StepRange(order, table, start, stop)
        sizes = {path: self._shards[path].num_bytes for path in table.paths}
        need = least_budget(steps, np.array([*sizes.values()], np.int64))
        budget = self.staged.budget_bytes
        if need > budget:
            raise ConfigError(
                f"reading.staging_bytes = {budget:,} is too little for the order of the {table.split} split: "
                f"it needs {need:,} bytes of {sum(sizes.values()):,} at a time",
                f"raise it to {need:,} or more; or read neighbouring records together: set "
                "data.granularity=block, data.block_records to the records of a shard, and "
                "data.window_blocks to a few",
            )
        expected = self._expected | {*table.paths}
        self._expected_fit = sum(self._shards[path].num_bytes for path in expected) <= budget
        self._expected = expected
        self._prefetcher.prefetch(steps, sizes)

    def advance(self, split: str, run_step: int) -> None:
        """Note that a split is being read at this step."""
        self._prefetcher.advance(split, run_step)

    def _fetched(self, shard: Shard) -> Descriptor | None:
        """Fetch a shard that is needed now; None if another process or thread is fetching it."""
        claim = self.staged.claim(self._name(shard.path))
        if claim is None:
            return None
        # So that this process neither waits for room that it occupies itself nor evicts its next shards.
        self._held.clear()
        self._prefetcher.update()
        with claim:
            self.staged.make_room(claim, shard.num_bytes, self._next_use)
        return self._filled(claim, shard, _pause)

    def _prepare_ahead(self, path: str, distance: float) -> Callable[[], None] | None:
        """Reserve room for a shard. Return a function that fetches it; None: there is no room."""
        shard = self._shards[path]
        claim = None if path in self._failed else self.staged.claim(self._name(path))
        if claim is None:
            return lambda: None  # another process or thread fetches it
        for other in list(self._held):
            if self._prefetcher.distance(other) > distance:
                self._held.pop(other, None)
        with claim:
            has_room = self.staged.make_room(claim, shard.num_bytes, self._next_use, before=distance)
        if not has_room:
            claim.give_up()
            return None
        return lambda: self._fetch_ahead(claim, shard)

    def _fetch_ahead(self, claim: Claim, shard: Shard) -> None:
        try:
            self._filled(claim, shard, self._prefetcher.closed.wait)
        except ShardmillError as error:
            # Whoever needs the shard tries again, and fails with this error.
            self._failed.add(shard.path)
            _warn(f"not staged ahead of use: {error.message}")

    def _filled(self, claim: Claim, shard: Shard, given_up: Callable[[float], bool]) -> Descriptor | None:
        with claim:
            whole = fetch_shard(self._version, shard, claim, given_up, _warn)
        if not whole:
            claim.give_up()
            return None
        with self._lock:
            self.num_fetched += 1
        self._failed.discard(shard.path)
        return claim.commit()

    def _next_use(self, name: str) -> float:
        return self._prefetcher.distance(self._paths.get(name, ""))

    def _is_staged(self, path: str) -> bool:
        return self.staged.has(self._name(path))

    def _name(self, path: str) -> str:
        return f"{self._version.name}/{self._shards[path].sha256}"

    # -- progress and resources ------------------------------------------------------------------------

    def _tick(self) -> None:
        """Release shards that were held too long, and report how many are staged."""
        now = time.monotonic()
        for path, (_, since) in list(self._held.items()):
            if now - since >= _HELD_SECONDS:
                self._held.pop(path, None)
        if not self._expected:
            return
        report: tuple[int, int | None] = self.num_fetched, None
        if self._expected_fit:
            report = sum(map(self._is_staged, self._expected)), len(self._expected)
        if self._reported is None and report[0] != report[1]:
            events.stage("staging", report[1], unit="shards", done=report[0])
        elif self._reported not in (None, report):
            events.progress("staging", *report, unit="shards")
        self._reported = report

    def _check_largest(self) -> None:
        largest = max(self._shards.values(), key=lambda shard: shard.num_bytes, default=None)
        if largest is not None and largest.num_bytes > self.staged.budget_bytes:
            raise ConfigError(
                f"reading.staging_bytes = {self.staged.budget_bytes:,} cannot hold {largest.path} "
                f"({largest.num_bytes:,} bytes)",
                "raise it, or prepare smaller shards",
            )

    def close(self) -> None:
        """End the threads and release all files. Staged shards stay for the next run."""
        self._prefetcher.close()
        self._held.clear()


def _pause(seconds: float) -> bool:
    if seconds:
        time.sleep(seconds)
    return False


def _warn(message: str) -> None:
    events.log(message, level="warning")


_stagings: weakref.WeakSet[Staging] = weakref.WeakSet()


def _close_all() -> None:
    # Before the storage library cleans up, which would crash threads that still read.
    for staging in list(_stagings):
        staging.close()


def _start_anew_after_fork() -> None:
    # The threads and locks stay the parent's. Locks kept here would outlive the parent's use of a shard.
    for staging in list(_stagings):
        staging._start()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_start_anew_after_fork)
