"""Claim the spool of a run, and remove spools that are no longer needed.

A run works in ``spool/<run digest>/`` and, once it has planned, in ``data/<plan digest>/``. Both belong to
whoever holds the lock of the run: a plan's digest covers that of its run, so no two runs share a plan. The
spool has a file for each plan (``plans/<plan digest>.arrow``) before the first byte of its data is written.
So all that a dead run left is found by its spool, and may go while its lock is held, but for what a manifest
names. The lock's own file stays for ever: see ``Storage.exclusive_lock``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding, lock_for_run
from shardmill.infra.dataset.maintenance.removed import files_of_removed, warning_of_unfinished_purge
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import DataError, EnvironmentFault, LockedError, NotFoundError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.layout import data_dir, spool_dir
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

PLANS_FOLDER = "plans"
DAMAGED_FOLDER = "damaged"

_SPOOLS = "spool"
_PATIENCE_SECONDS = 2.0  # the clean-up of another run may hold the lock for a moment
_FAULTS = (OSError, EnvironmentFault, DataError)  # of cleaning up: the version is published anyway


def plan_file(plan_digest: str) -> str:
    """Path of a plan's records, relative to the spool."""
    return f"{PLANS_FOLDER}/{plan_digest}.arrow"


def note_damage(spool: Storage, shard_path: str) -> None:
    """Note for the job that a shard of the previous version is damaged."""
    spool.write_atomic(f"{DAMAGED_FOLDER}/{digest_of(shard_path)}", shard_path.encode())


def damaged_shards(spool: Storage) -> frozenset[str]:
    """Return the paths of the damaged shards of the previous version."""
    notes = spool.list_files(DAMAGED_FOLDER, recursive=False)
    return frozenset(spool.read_bytes(entry.path).decode() for entry in notes)


class RunClaim:
    """The claim to be the only process on a run's work. It is taken when needed and released at the end.

    While it is held, nobody removes what is published (shardmill.infra.dataset.lock).
    """

    def __init__(self, catalog: Catalog, dataset: str, run_digest: str) -> None:
        self._catalog = catalog
        self._dataset = dataset
        self._run = run_digest
        self._storage = catalog.dataset_storage(dataset)
        self._held = ExitStack()
        self.is_held = False

    def __enter__(self) -> Self:
        if warning := warning_of_unfinished_purge(self._storage, self._dataset):
            log(warning, level="warning")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def has_work(self) -> bool:
        """Return whether an interrupted run left work to continue."""
        return self._storage.exists(spool_dir(self._run))

    def take(self) -> None:
        """Hold the lock from here on; nothing happens where it is held already.

        Raises:
            LockedError: another process is at this work.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.is_held:
            purpose = f"preparing {self._dataset} from this source"
            locks = ExitStack()
            try:
                locks.enter_context(lock_for_adding(self._storage, self._dataset))
                locks.enter_context(lock_for_run(self._storage, _lock(self._run), purpose))
                self._held.enter_context(locks)
                self.is_held = True
            except LockedError:
                locks.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def clear(self) -> None:
        """Remove this run's spool, and the data of plans that it began and did not publish."""
        try:
            _clear(self._catalog, self._dataset, self._run)
        except _FAULTS as error:
            log(f"not everything of the finished work could be removed: {error}", level="warning")

    def clear_abandoned(self) -> None:
        """Remove the files of other runs that are not at work now, since the new version outdates them."""
        for run in self._storage.list_folders(_SPOOLS):
            if run == self._run:
                continue
            try:
                with lock_for_run(self._storage, _lock(run)):
                    _clear(self._catalog, self._dataset, run)
            except LockedError:
                continue
            except _FAULTS as error:
                log(f"not everything that an earlier run left could be removed: {error}", level="warning")


@dataclass(frozen=True, slots=True)
class InterruptedRun:
    """The unfinished work of a run: the digest of the run, its size (bytes), its last change (s, epoch)."""

    digest: str
    num_bytes: int
    changed_at: float


def interrupted_runs(catalog: Catalog, dataset: str, *, older_than_seconds: float) -> list[InterruptedRun]:
    """The runs with unfinished work that has not changed for so long."""
    storage, found = catalog.dataset_storage(dataset), []
    for run in storage.list_folders(_SPOOLS):
        files = storage.list_files(spool_dir(run))
        changed_at = max((entry.mtime_ns for entry in files), default=0) / 1e9
        if time.time() - changed_at > older_than_seconds:
            found.append(InterruptedRun(run, sum(entry.size_bytes for entry in files), changed_at))
    return found


def clear_interrupted(catalog: Catalog, dataset: str, run_digest: str) -> bool:
    """Remove the unfinished work of a run; tell whether it was removed: not if the run works again."""
    storage = catalog.dataset_storage(dataset)
    try:
        with lock_for_adding(storage, dataset), lock_for_run(storage, _lock(run_digest)):
            _clear(catalog, dataset, run_digest)
    except LockedError:
        return False
    return True


def _lock(run_digest: str) -> str:
    return f"{spool_dir(run_digest)}.lock"


def _clear(catalog: Catalog, dataset: str, run_digest: str) -> None:
    """Remove a run's unpublished data and then its spool, which names them. Its lock must be held."""
    storage = catalog.dataset_storage(dataset)
    plans = storage.list_files(f"{spool_dir(run_digest)}/{PLANS_FOLDER}", recursive=False)
    begun = {data_dir(entry.path.rpartition("/")[2].removesuffix(".arrow")) for entry in plans}
    begun -= {path.rpartition("/")[0] for path in files_of_removed(storage)}
    versions = reversed(catalog.versions(dataset))  # most often the newest names all there are
    while begun and (version := next(versions, None)) is not None:
        begun -= _folders(catalog.open(f"{dataset}@{version}").manifest)
    for folder in sorted(begun):
        storage.delete_tree(folder)
    storage.delete_tree(spool_dir(run_digest))


def _folders(manifest: Manifest) -> set[str]:
    """The folders of every file that a version names."""
    return {path.rpartition("/")[0] for path in manifest.files()} | {data_dir(manifest.plan_digest)}


_SOURCE_FILE = "source.json"


def note_source(spool: Storage, given: str, source: str) -> None:
    """Note the commit of the Hub that a run reads.

    Args:
        spool: folder of unfinished work of the run.
        given: the source as the user gave it.
        source: the same with its commit.
    """
    spool.write_atomic(_SOURCE_FILE, dump_json({"given": given, "source": source}).encode())


def begun_source(dataset: Storage, run: str, given: str) -> str | None:
    """Return the source that an interrupted run reads; None if there is none, or another one was given."""
    try:
        noted = json.loads(dataset.read_bytes(f"{spool_dir(run)}/{_SOURCE_FILE}"))
    except NotFoundError:
        return None
    return str(noted["source"]) if noted["given"] == given else None


def forget_source(dataset: Storage, run: str) -> None:
    """Forget the commit of the Hub that a run read."""
    dataset.delete(f"{spool_dir(run)}/{_SOURCE_FILE}")


BUILDS_FILE = "builds.json"


def note_builds(spool: Storage, work: str, builds: Mapping[str, str]) -> None:
    """Note the builds of a run in its spool.

    Args:
        spool: folder of unfinished work of the run.
        work: digest of source and configuration, without the builds.
        builds: library -> version.
    """
    spool.write_atomic(BUILDS_FILE, dump_json({"work": work, "builds": dict(builds)}).encode())


def check_builds(dataset: Storage, run: str, work: str, builds: Mapping[str, str]) -> None:
    """Compare this run's builds with the builds of unfinished runs of the same work.

    Args:
        dataset: the dataset's folder.
        run: digest of this run, which continues its own work.
        work: digest of source and configuration, without the builds.
        builds: library -> version.

    Raises:
        EnvironmentFault: there is an unfinished run under other builds, and none under these.
    """
    runs = dataset.list_folders(_SPOOLS)
    if run in runs:
        return
    for other in sorted(runs):
        spool = dataset.child(spool_dir(other))
        try:
            note = json.loads(spool.read_bytes(BUILDS_FILE))
        except (NotFoundError, ValueError):
            continue  # being removed, or never begun
        if note["work"] == work and note["builds"] != dict(builds):
            then, now = _differences(note["builds"], builds)
            raise EnvironmentFault(
                f"an unfinished run of this source and configuration was made with {then}, "
                f"this one with {now}",
                f"install these versions to continue it, or delete {spool.uri} to begin anew",
            )


def _differences(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, str]:
    """Return the builds in which two runs differ, in words."""
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))

    def told(builds: Mapping[str, str]) -> str:
        return ", ".join(f"{name} {builds.get(name, 'none')}" for name in names)

    return told(then), told(now)
