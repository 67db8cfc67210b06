"""Training runs in an object store, worked on in a copy on this machine.

Libraries write checkpoints, logs and exports as files, so a run is trained in a copy of its folder,
``$SHARDMILL_RUNS_COPY/<digest of the URI>/<run>`` (by default below ``~/.cache/shardmill/runs``). A thread
uploads what changed every few seconds: figures first, then checkpoints, and last of all ``result.json``,
which marks a finished run. Each object appears whole. A run that died is continued on any machine, from the
last checkpoint that was uploaded. A lease in the store lets one machine at a time train a run.

Of the ranks on several machines, the first alone has a copy and holds the lease. It tells the others what the
checkpoint has (``shardmill.training.run.checkpoints.shared``), so nothing on their machines can be out of
date.

Each copy has a lock beside it, which its users hold: nothing is replaced in a copy that is in use.

Records of aliases (``shardmill.training.aliases``) are created in the store itself, and read from a copy.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from shardmill.infra import progress as events
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import GO_ON, LockedError, ShardmillError, StorageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.leases import DEFAULT_TIMES
from shardmill.infra.storage.locations import public_location
from shardmill.infra.storage.locking import Lock
from shardmill.infra.storage.mirror import Mirror
from shardmill.training.aliases.history import FOLDER as ALIASES
from shardmill.training.results.run_files.run_folder import RunFolder, is_run, open_run

_PUSH_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0  # results are copied within this time
_LOOK_SECONDS = 0.2
_LEASE_LOOK_SECONDS = 2.0
# The lease of a machine that is gone has ended by then.
_LEASE_PATIENCE_SECONDS = sum(
    (DEFAULT_TIMES.lease_seconds, DEFAULT_TIMES.margin_seconds, DEFAULT_TIMES.renew_seconds)
)
_LOCKS = ".locks"
_RESULT = "result.json"
_CHECKPOINTS = "checkpoints/"
_LOGS = "logs/"


def is_in_store(runs: str | Path) -> bool:
    """Tell whether the folder of the runs is in an object store."""
    return "://" in str(runs) and not str(runs).startswith("file://")


def _copies_of(runs: str) -> Path:
    """Return the folder of this machine for the copies of the runs of a store."""
    place = os.environ.get("SHARDMILL_RUNS_COPY") or Path("~/.cache/shardmill/runs").expanduser()
    return Path(place).absolute() / digest_of(public_location(runs), length=10)


@contextlib.contextmanager
def kept_in_store(runs: str, name: str, *, is_started_again: bool = False) -> Iterator[Path]:
    """Hold the lease of a run in a store, and yield the local folder of the copies, to train in.

    First the copy of the run is made equal to the store. Until the block ends, a thread uploads its changes.

    Args:
        runs: the folder of the runs in the store.
        name: the name of the run.
        is_started_again: an outer system may have started this process in place of one on a machine that is
            gone. Then wait until the lease of the old process has ended.

    Raises:
        LockedError: another process trains this run, uses its copy, or took the lease when this process could
            not renew it.
        StorageError: the store cannot be read, or the run cannot be uploaded.
    """
    copies, store = _copies_of(runs), Storage.at(runs)
    lease = partial(store.exclusive_lock, f"{_LOCKS}/{name}", purpose="the same training run")
    patience = _LEASE_PATIENCE_SECONDS if is_started_again else 0
    with (
        _when_free(lease, patience, _LEASE_LOOK_SECONDS),
        _using(copies, name, alone=True),
    ):
        mirror = Mirror(store.child(name), copies / name)
        mirror.pull()
        fetch_folder(runs, ALIASES)  # the model of an alias is not trained anew
        follower = _Follower(mirror)
        try:
            yield copies
        finally:
            follower.close()


@contextlib.contextmanager
def opened_run(named: str, runs: str | Path) -> Iterator[RunFolder]:
    """Open a run as ``open_run`` does. For a store, open its local copy, and upload new results at the end.

    Raises:
        NotFoundError: there is no such run or alias. StorageError: the store cannot be read or written.
        LockedError: a process of this machine trains it.
    """
    if not is_in_store(runs) or is_run(Path(named)):
        yield open_run(named, Path(str(runs).removeprefix("file://")))
        return
    copies, store = _copies_of(str(runs)), Storage.at(runs)
    if not store.exists(f"{named}/run.json"):
        fetch_runs(str(runs))
        named = open_run(named, copies).name  # the run of an alias; an error names the near miss
    _fetch_run(store, copies, named)
    with _using(copies, named, alone=False):
        yield open_run(named, copies)
        # Do not upload checkpoints: they are of a training that died here, and that another machine may have
        # continued.
        Mirror(store.child(named), copies / named).push(_order, wanted=_is_result)


def fetch_runs(runs: str, *, with_logs: bool = False) -> Path:
    """Copy the results of all runs of a store, and its aliases, to this machine. Return the local folder.

    A copy that is in use here stays as it is. The local results of runs that the store lacks are removed.

    Args:
        runs: the folder of the runs in the store.
        with_logs: copy the logs too, which TensorBoard reads.

    Raises:
        StorageError: the store cannot be read.
    """
    copies, store = _copies_of(runs), Storage.at(runs)
    for name in sorted({*store.list_folders(), *Storage.at(copies).list_folders()} - {ALIASES}):
        if not name.startswith("."):
            _fetch_run(store, copies, name, with_logs=with_logs)
    fetch_folder(runs, ALIASES)
    return copies


def fetch_folder(runs: str, name: str) -> Path:
    """Copy a folder beside the runs of a store, such as ``aliases``, to this machine. Return the copy.

    Raises:
        StorageError: the store cannot be read.
    """
    copies = _copies_of(runs)
    with _using(copies, name, alone=True):
        Mirror(Storage.at(runs).child(name), copies / name).pull()
    return copies / name


def local_folder(runs: str) -> Path:
    """Return the local folder of the runs; for a store, that of the copies, as they are."""
    return _copies_of(runs) if is_in_store(runs) else Path(runs.removeprefix("file://"))


def local_runs(runs: str) -> Path:
    """Return the local folder of the runs; for a store, first copy their results to this machine.

    Raises:
        StorageError: the store cannot be read.
    """
    return fetch_runs(runs) if is_in_store(runs) else local_folder(runs)


def _fetch_run(store: Storage, copies: Path, name: str, *, with_logs: bool = False) -> None:
    """Copy the results of a run, unless its copy is in use: then it is as new, or newer."""
    with contextlib.suppress(LockedError), _using(copies, name, alone=True, patience=0):
        Mirror(store.child(name), copies / name).pull(_is_no_checkpoint if with_logs else _is_result)


def _using(
    copies: Path, name: str, *, alone: bool, patience: float = _PATIENCE_SECONDS
) -> contextlib.AbstractContextManager[None]:
    """Hold the lock on the copy of a run, alone or with others; wait for it for ``patience`` seconds."""
    folder = Storage.at(copies)
    take = folder.exclusive_lock if alone else folder.shared_lock
    lock = partial(take, f"{_LOCKS}/{name}.copy", "the copy of this training run")
    return _when_free(lock, patience, _LOOK_SECONDS)


@contextlib.contextmanager
def _when_free(
    lock: Callable[[], contextlib.AbstractContextManager[Lock]], patience: float, every: float
) -> Iterator[None]:
    """Hold a lock; wait for it for ``patience`` seconds, and look after ``every`` seconds."""
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(lock())
                break
            except LockedError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(every)
        yield


def _is_result(path: str) -> bool:
    """Tell whether commands read a file of a run; training reads the others, and TensorBoard the logs."""
    return not path.startswith((_CHECKPOINTS, _LOGS))


def _is_no_checkpoint(path: str) -> bool:
    return not path.startswith(_CHECKPOINTS)


def _order(path: str) -> tuple[int, str]:
    """Sort figures before the checkpoint that belongs to them, and ``result.json`` last."""
    return (2 if path == _RESULT else 1 if path.startswith(_CHECKPOINTS) else 0), path


class _Follower:
    """Uploads changed files of a copy, every few seconds and at the end."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="shardmill-run-upload", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._closed.wait(_PUSH_SECONDS):
            try:
                self._mirror.push(_order, _RESULT)
            except LockedError as lost:
                events.log(f"{lost.message}; nothing more is uploaded", level="error")
                return
            except (ShardmillError, OSError) as error:
                events.log(f"the run is not uploaded yet: {error}", level="warning")

    def close(self) -> None:
        """Stop the thread, and upload the remaining changes.

        Raises:
            LockedError: another process has taken the run over. StorageError: the store cannot be written.
        """
        self._closed.set()
        self._thread.join()
        try:
            self._mirror.push(_order, _RESULT)
        except OSError as error:
            raise StorageError(f"cannot upload the run: {error}", f"check the store, then {GO_ON}") from error
