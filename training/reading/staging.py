"""Shards of an object store, staged to this machine ahead of use, in the order in which they are needed.

A reader asks for a shard as if it were a local file. Where it is staged, it gets the open file; where not,
the asking thread fetches it. Threads of the background (training.reading.ahead) fetch what the coming steps
need, nearest first, and evict what is needed latest, within the budget. Every shard is checked by size and
SHA-256 before it is used. Processes of one machine that stage into the same folder share what is there, and
the budget (training.reading.staged_folder).
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

from infra import progress as events
from infra.catalog import DatasetVersion
from infra.contract import Shard
from infra.digests import stream_sha256
from infra.errors import ConfigError, ShardmillError
from infra.ranges import Descriptor
from training.config.reading import ReadingSettings
from training.order import Order
from training.reading.ahead import Acts, Ahead
from training.reading.coming import Course, least_budget
from training.reading.fetching import fetch_shard
from training.reading.staged_folder import STALL_SECONDS, Claim, StagedFolder
from training.reading.table import SplitTable

# An open shard is let go after so long, in use or not, and opened anew: so that others can evict it.
_HELD_SECONDS = 0.5

_Held = dict[str, tuple[Descriptor, float]]


def staging_for(version: DatasetVersion, settings: ReadingSettings) -> Staging | None:
    """The staging that the settings ask for; None where the shards are on this machine, or none is asked for.

    Raises:
        ConfigError: the budget cannot hold the largest shard. StorageError: the folder cannot be made.
    """
    if settings.staging_dir is None or version.storage.is_local:
        return None
    return Staging(version, Path(settings.staging_dir).expanduser().absolute(), settings.staging_bytes)


class Staging:
    """Staged shards of one version; safe for many threads. Pickles as its settings."""

    def __init__(
        self,
        version: DatasetVersion,
        folder: Path,
        budget_bytes: int | None = None,
        *,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        """Args:
        version: whose shards.
        folder: where to; it need not exist yet.
        budget_bytes: of the folder, over all datasets and processes; default: half of what its disk has
            free, counting what is staged already.
        stall_seconds: how long to wait for another process that gives no sign of life.

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
        self._followed: frozenset[str] = frozenset()
        self._followed_fit = False
        self._lock = threading.Lock()
        self.num_fetched = 0
        acts = Acts(self._prepare_ahead, self._is_staged, self._tick)
        self._ahead = Ahead(self.staged.budget_bytes, acts)
        _stagings.add(self)

    def __reduce__(self) -> tuple[type[Staging], tuple[DatasetVersion, Path, int | None]]:
        return Staging, self._asked

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, path: str, offset: int, length: int) -> bytes:
        """``length`` bytes of a shard from ``offset``; fewer only where it ends."""
        return os.pread(self.open_local(path).fileno(), length, offset)

    def open_local(self, path: str) -> Descriptor:
        """The staged shard, fetched now where it is not there. It is in use while the descriptor lives.

        Raises:
            CorruptDataError: the object is missing or not what was written. StorageError: it cannot be
                fetched, or there is no room for it.
        """
        held = self._held.get(path)
        if held is not None and time.monotonic() - held[1] < _HELD_SECONDS:
            return held[0]
        shard = self._shards[path]
        del held
        self._held.pop(path, None)
        found = self._opened(shard)
        self._held[path] = found, time.monotonic()
        self._ahead.start()
        return found

    def _opened(self, shard: Shard) -> Descriptor:
        name = self._name(shard.path)
        while True:
            found = self.staged.open(name, shard.num_bytes) or self._fetched(shard)
            if found is not None:
                return found
            self.staged.wait_for_other(name)

    def is_damaged(self, path: str) -> bool:
        """Whether there is a staged copy that is not what was fetched; then it goes, to be fetched anew."""
        found = self.staged.open(self._name(path), self._shards[path].num_bytes)
        if found is None:
            return False
        # By a descriptor of its own, since one position in the file serves all threads.
        with Path(f"/proc/self/fd/{found.fileno()}").open("rb") as stream:
            if stream_sha256(stream) == self._shards[path].sha256:
                return False
        events.log(f"the staged copy of {path} was damaged; it is fetched anew", level="warning")
        self.staged.discard(self._name(path))
        self._held.pop(path, None)
        return True

    # -- fetching --------------------------------------------------------------------------------------

    def follow(self, order: Order, table: SplitTable, start: int, stop: int) -> None:
        """Fetch ahead what the steps ``start`` to ``stop`` (epoch * steps_per_epoch + step) of a split need.

        Raises:
            ConfigError: the budget cannot hold what a few neighbouring steps need.
        """
        course = Course(order, table, start, stop)
        sizes = {path: self._shards[path].num_bytes for path in table.paths}
        need = least_budget(course, np.array([*sizes.values()], np.int64))
        budget = self.staged.budget_bytes
        if need > budget:
            raise ConfigError(
                f"reading.staging_bytes = {budget:,} is too little for the order of the {table.split} split: "
                f"it needs {need:,} bytes of {sum(sizes.values()):,} at a time",
                f"raise it to {need:,} or more; or have neighbouring records read together: "
                'data.granularity = "block", block_records as many as a shard has, window_blocks a few',
            )
        followed = self._followed | {*table.paths}
        self._followed_fit = sum(self._shards[path].num_bytes for path in followed) <= budget
        self._followed = followed
        self._ahead.follow(course, sizes)

    def reached(self, split: str, run_step: int) -> None:
        """The steps of a followed split are read as far as this one."""
        self._ahead.reached(split, run_step)

    def _fetched(self, shard: Shard) -> Descriptor | None:
        """Fetch a shard that is needed now; None where another process or thread does."""
        claim = self.staged.claim(self._name(shard.path))
        if claim is None:
            return None
        # Nobody waits for room that this process keeps from itself, or evicts what it is about to need.
        self._held.clear()
        self._ahead.look()
        with claim:
            self.staged.make_room(claim, shard.num_bytes, self._next_use)
        return self._filled(claim, shard, _pause)

    def _prepare_ahead(self, path: str, distance: float) -> Callable[[], None] | None:
        """Room for one shard, for the background; returns what fetches it. None: there is no room."""
        shard = self._shards[path]
        claim = None if path in self._failed else self.staged.claim(self._name(path))
        if claim is None:
            return lambda: None  # another fetches it
        for other in list(self._held):
            if self._ahead.distance(other) > distance:
                self._held.pop(other, None)
        with claim:
            has_room = self.staged.make_room(claim, shard.num_bytes, self._next_use, before=distance)
        if not has_room:
            claim.give_up()
            return None
        return lambda: self._fetch_ahead(claim, shard)

    def _fetch_ahead(self, claim: Claim, shard: Shard) -> None:
        try:
            self._filled(claim, shard, self._ahead.closed.wait)
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
        return self._ahead.distance(self._paths.get(name, ""))

    def _is_staged(self, path: str) -> bool:
        return self.staged.has(self._name(path))

    def _name(self, path: str) -> str:
        return f"{self._version.name}/{self._shards[path].sha256}"

    # -- upkeep ----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Let go of shards that were held for long, and say how far the staging is."""
        now = time.monotonic()
        for path, (_, since) in list(self._held.items()):
            if now - since >= _HELD_SECONDS:
                self._held.pop(path, None)
        if not self._followed:
            return
        report: tuple[int, int | None] = self.num_fetched, None
        if self._followed_fit:
            report = sum(map(self._is_staged, self._followed)), len(self._followed)
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
        """End the threads and let go of all files; what is staged stays for the next run."""
        self._ahead.close()
        self._held.clear()


def _pause(seconds: float) -> bool:
    if seconds:
        time.sleep(seconds)
    return False


def _warn(message: str) -> None:
    events.log(message, level="warning")


_stagings: weakref.WeakSet[Staging] = weakref.WeakSet()


def _close_all() -> None:
    # Before the storage library's own clean-up, which threads in its midst would not survive.
    for staging in list(_stagings):
        staging.close()


def _begin_anew_after_fork() -> None:
    # The threads are the parent's, and so are the locks: kept here, they would outlive the parent's use.
    for staging in list(_stagings):
        staging._start()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_anew_after_fork)
