"""Locks between processes on any machines, by a file or object that lists who holds the lock.

The list is JSON: ``{"holders": [...], "written_by": ID}``. Every change of it is a conditional replacement,
so two processes never change it at once. A holder renews its entry every 15 seconds; an entry lasts for 60
seconds. It is exclusive, or shares the lock with others that do. A process that dies or is stopped renews
nothing. The next process that wants the lock removes its entry: 30 seconds after it ended, or at once where
the death can be seen on the same machine.

Clocks: ages of entries are differences of times of the store itself (of its file system or its objects), so
the clocks of the machines may differ. A holder trusts its own clock for 60 seconds after its last renewal.
Later, ``ensure_held`` asks the store before anything is written: if another process has removed the entry,
the holder stops, and otherwise it goes on. So a process that was suspended never works on with a lost lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from shardmill.infra.errors import GO_ON, EnvironmentFault, LockedError, StorageError
from shardmill.infra.storage.locking import (
    HolderList,
    ListChanged,
    Lock,
    Written,
    has_ended,
    machine,
    started_at,
)
from shardmill.infra.strict_json import dump_json

_MAX_UPDATES = 100  # attempts to change the list against others who change it too
_UPDATE_PAUSE_SECONDS = 0.1
_FAULTS = (OSError, EnvironmentFault)  # faults of the store that may be temporary


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations of a lease.

    Attributes:
        lease_seconds: from a renewal to the end of the entry.
        renew_seconds: from one renewal to the next.
        margin_seconds: how much later another process may take the lock. A request that the holder sent
            just before may still arrive, and stores round the times of their objects.
    """

    lease_seconds: float = 60.0
    renew_seconds: float = 15.0
    margin_seconds: float = 30.0


DEFAULT_TIMES = LeaseTimes()


@dataclass(frozen=True, slots=True)
class _Holder:
    """One entry of the list.

    Attributes:
        id: unique to this lease.
        exclusive: whether it excludes all others.
        host: name of its machine, for people.
        machine: the boot and the process namespace: within one, process ids are comparable.
        pid: its process id.
        started: when its process started (clock ticks since the boot).
        renewals: how often it was renewed.
        renewed_at: when it was renewed, by the clock of the store (seconds since the epoch). The list has it
            for all entries but the one that was renewed last: that one is as old as the list.
    """

    id: str
    exclusive: bool
    host: str
    machine: str
    pid: int
    started: int
    renewals: int = 0
    renewed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SeenHolder:
    """A holder of a lock, seen by another process.

    Attributes:
        host: name of its machine.
        renewed_at: when it was renewed, by the clock of the store (seconds since the epoch).
        has_expired: whether another process may take the lock.
    """

    host: str
    renewed_at: float
    has_expired: bool


def seen_holders(holders: HolderList, name: str, times: LeaseTimes = DEFAULT_TIMES) -> list[SeenHolder]:
    """Return the entries of a list, without changing it.

    Raises:
        StorageError: it is no list of holders. OSError: it cannot be read.
    """
    listed = _parse(holders.read(), name)
    if not listed:
        return []
    oldest = holders.now() - times.lease_seconds - times.margin_seconds
    return [SeenHolder(one.host, one.renewed_at, one.renewed_at < oldest or _is_dead(one)) for one in listed]


@contextlib.contextmanager
def lease(
    holders: HolderList, *, exclusive: bool, purpose: str, name: str, times: LeaseTimes = DEFAULT_TIMES
) -> Iterator[Lock]:
    """Hold a lock by an entry in a list of holders. The list itself is never deleted.

    Args:
        holders: the list.
        exclusive: hold the lock alone; otherwise others may share it.
        purpose: the work of the holder, for the errors of other processes.
        name: name of the list, for people.
        times: how long an entry lasts.

    Raises:
        LockedError: another process holds it. OSError: the list cannot be read or written.
    """
    held = _Lease(holders, exclusive, purpose, name, times)
    held.acquire()
    stop = threading.Event()
    renewal = threading.Thread(target=held.renew_until, args=(stop,), name=f"lease {name}", daemon=True)
    renewal.start()
    try:
        yield held
    finally:
        stop.set()
        renewal.join()
        held.release()


class _Lease(Lock):
    """One entry, from its creation to its removal."""

    def __init__(
        self, holders: HolderList, exclusive: bool, purpose: str, name: str, times: LeaseTimes
    ) -> None:
        self._list = holders
        self._purpose = purpose
        self._name = name
        self._times = times
        self._renewing = threading.Lock()
        self._is_gone = False
        self._valid_until = 0.0  # time by this machine's clock
        self._entry = _Holder(
            id=uuid.uuid4().hex,
            exclusive=exclusive,
            host=socket.gethostname(),
            machine=machine(),
            pid=os.getpid(),
            started=started_at(os.getpid()),
        )

    def ensure_held(self) -> None:
        """Check that no other process can have taken the lock.

        Raises:
            LockedError: another process has taken it, or the store cannot tell.
        """
        if _clock() <= self._valid_until and not self._is_gone:
            return
        try:
            self._renew()
        except _EntryGone:
            raise LockedError(
                f"the lock {self._name} was lost: it was not renewed for "
                f"{self._times.lease_seconds:g} seconds, and another process took it",
                GO_ON,
            ) from None
        except _FAULTS as error:
            raise LockedError(
                f"the lock {self._name} was lost: it could not be renewed for "
                f"{self._times.lease_seconds:g} seconds, and another process may hold it now ({error})",
                f"check the network, then {GO_ON}",
            ) from error

    def acquire(self) -> None:
        """Add the entry.

        Raises:
            LockedError: another holder excludes it.
        """

        def add(holders: list[_Holder]) -> list[_Holder]:
            alive = [holder for holder in holders if not _is_dead(holder)]
            others = [holder for holder in alive if holder.exclusive or self._entry.exclusive]
            now = self._list.now() if others else 0.0
            expired = {holder.id for holder in others if self._seconds_left(holder, now) < 0}
            for other in others:
                if other.id not in expired:
                    raise self._locked_by(other, self._seconds_left(other, now))
            return [*(holder for holder in alive if holder.id not in expired), self._entry]

        self._update(add)

    def renew_until(self, stop: threading.Event) -> None:
        """Renew the entry until ``stop`` is set, or the entry is gone."""
        while not stop.wait(self._times.renew_seconds):
            try:
                self._renew()
            except _EntryGone:
                return
            except _FAULTS:
                continue  # the entry may last long enough for the next renewal; ensure_held tells

    def release(self) -> None:
        """Remove the entry; if the store cannot be reached, the entry expires."""
        with contextlib.suppress(*_FAULTS):
            self._update(lambda holders: [holder for holder in holders if holder.id != self._entry.id])
        self._is_gone = True

    def _renew(self) -> None:
        """Renew the entry.

        Raises:
            _EntryGone: another process has removed it.
        """

        def extend(holders: list[_Holder]) -> list[_Holder]:
            others = [holder for holder in holders if holder.id != self._entry.id]
            if len(others) == len(holders):
                raise _EntryGone
            return [*others, self._entry]

        with self._renewing:
            if self._is_gone:
                raise _EntryGone
            self._entry = replace(self._entry, renewals=self._entry.renewals + 1)
            try:
                self._update(extend)
            except _EntryGone:
                self._is_gone = True
                raise

    def _seconds_left(self, other: _Holder, now: float) -> float:
        return other.renewed_at + self._times.lease_seconds + self._times.margin_seconds - now

    def _update(self, change: Callable[[list[_Holder]], list[_Holder]]) -> None:
        """Replace the list of holders by the result of ``change``."""
        for _ in range(_MAX_UPDATES):
            found = self._list.read()
            began = _clock()
            holders = change(_parse(found, self._name))
            listed = {"holders": [asdict(holder) for holder in holders], "written_by": self._entry.id}
            try:
                self._list.write(dump_json(listed, indent=1).encode(), found)
            except ListChanged:
                time.sleep(random.uniform(0, _UPDATE_PAUSE_SECONDS))
                continue
            self._valid_until = began + self._times.lease_seconds
            return
        raise StorageError(
            f"could not update the lock {self._name} after {_MAX_UPDATES} attempts: "
            "too many processes update it",
            "run again in a minute",
        )

    def _locked_by(self, other: _Holder, seconds_left: float) -> LockedError:
        return LockedError(
            f"another process (pid {other.pid} on {other.host}) is busy with {self._purpose}; "
            f"it locks {self._name}",
            "wait for it to end, or stop it; "
            f"if it is dead, its lock ends in {max(seconds_left, 0):.0f} seconds",
        )


class _EntryGone(Exception):
    """Another process removed the entry, since it was not renewed in time."""


def _parse(found: Written | None, name: str) -> list[_Holder]:
    """The holders of a list; none where a kernel's lock left the number of a process."""
    if found is None or found.data.strip().isdigit() or not found.data.strip():
        return []
    try:
        # A writer that is killed may leave the end of an older, longer list behind.
        listed, _ = json.JSONDecoder().raw_decode(found.data.decode())
        return [_holder(entry, listed.get("written_by"), found) for entry in listed["holders"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(
            f"{name} is not a lock of Shardmill: {error}",
            "delete it, once nothing works on the dataset",
        ) from error


_FIELDS = frozenset(field.name for field in fields(_Holder))


def _holder(entry: dict[str, Any], written_by: str | None, found: Written) -> _Holder:
    """One entry. Entries of earlier releases used another clock; they count as old as the list itself."""
    holder = _Holder(**{name: value for name, value in entry.items() if name in _FIELDS})
    is_newest = holder.id == written_by or not holder.renewed_at
    return replace(holder, renewed_at=found.modified_at) if is_newest else holder


def _is_dead(holder: _Holder) -> bool:
    """Tell whether the process is known to be dead: it can be known on its own machine only."""
    return holder.machine == machine() and has_ended(holder.pid, holder.started)


def _clock() -> float:
    """A clock of this machine that goes on while the machine sleeps (seconds)."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
