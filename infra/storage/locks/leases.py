"""Locks between processes on any machines, by an object that lists who holds the lock and until when.

The object is JSON: ``{"holders": [...]}``. Every change of it is a conditional replacement, so two processes
never change it at once. A holder is listed for 60 seconds and renews its entry every 15; it is exclusive, or
shares the lock with others that do. A process that dies stops renewing. Its entry is removed by the next
process that wants the lock: 30 seconds after it ended, or at once on the same machine, where the death can be
seen.

Clocks: the end of an entry is written by the holder's clock and read by the clocks of others. The lock is
safe while the clocks of all writers differ by less than 30 seconds. A holder itself trusts only its monotonic
clock: ``ensure_held`` fails as soon as its last renewal was 60 seconds ago, so a process that was suspended
does not go on with a lock that another has taken meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from infra.errors import GO_ON, LockedError, StorageError
from infra.storage.locks.locking import Lock
from infra.storage.objects.conditional import ConditionalObjects, ObjectChanged

_MAX_UPDATES = 100  # attempts to change the object against others who change it too
_UPDATE_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations of a lease.

    Attributes:
        lease_seconds: from a renewal to the end of the entry.
        renew_seconds: from one renewal to the next.
        clock_seconds: how much the clocks of two writers may differ.
    """

    lease_seconds: float = 60.0
    renew_seconds: float = 15.0
    clock_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Holder:
    """One entry of the object.

    Attributes:
        id: unique to this lease.
        exclusive: whether it excludes all others.
        host: name of its machine, for people.
        machine: the boot and the process namespace: within one, process ids are comparable.
        pid: its process id.
        started: when its process started (clock ticks since the boot).
        expires_at: when the entry ends (seconds since the epoch).
    """

    id: str
    exclusive: bool
    host: str
    machine: str
    pid: int
    started: int
    expires_at: float

    def is_gone(self, times: LeaseTimes) -> bool:
        """Tell whether the entry has ended, or its process is known to be dead."""
        if time.time() > self.expires_at + times.clock_seconds:
            return True
        return self.machine == _machine() and _started(self.pid) != self.started


@contextlib.contextmanager
def lease(
    objects: ConditionalObjects,
    key: str,
    *,
    exclusive: bool,
    purpose: str,
    name: str,
    times: LeaseTimes = LeaseTimes(),
) -> Iterator[Lock]:
    """Hold a lock by an entry in the object ``key``, which stays behind.

    Args:
        objects: of the bucket.
        key: of the object.
        exclusive: hold it alone; otherwise others may share it.
        purpose: the work of the holder, for the errors of other processes.
        name: of the object, for people.
        times: how long an entry lasts.

    Raises:
        LockedError: another process holds it. OSError: the store cannot be reached.
    """
    held = _Lease(objects, key, exclusive, purpose, name, times)
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


class _Lease:
    """One entry, from its creation to its removal."""

    def __init__(
        self,
        objects: ConditionalObjects,
        key: str,
        exclusive: bool,
        purpose: str,
        name: str,
        times: LeaseTimes,
    ) -> None:
        self._objects = objects
        self._key = key
        self._purpose = purpose
        self._name = name
        self._times = times
        self._valid_until = 0.0  # by the monotonic clock
        self._entry = Holder(
            id=uuid.uuid4().hex,
            exclusive=exclusive,
            host=socket.gethostname(),
            machine=_machine(),
            pid=os.getpid(),
            started=_started(os.getpid()),
            expires_at=0.0,
        )

    def ensure_held(self) -> None:
        """Check that the entry has not ended.

        Raises:
            LockedError: it has.
        """
        if time.monotonic() > self._valid_until:
            raise LockedError(
                f"the lock {self._name} was lost: it could not be renewed for "
                f"{self._times.lease_seconds:g} seconds, and another process may hold it now",
                f"check the network, then {GO_ON}",
            )

    def acquire(self) -> None:
        """Add the entry.

        Raises:
            LockedError: another holder excludes it.
        """

        def add(holders: list[Holder]) -> list[Holder]:
            present = [holder for holder in holders if not holder.is_gone(self._times)]
            for other in present:
                if other.exclusive or self._entry.exclusive:
                    raise self._locked_by(other)
            return [*present, self._renewed()]

        self._update(add)

    def renew_until(self, stop: threading.Event) -> None:
        """Renew the entry until ``stop`` is set, or the entry is gone."""

        def extend(holders: list[Holder]) -> list[Holder]:
            others = [holder for holder in holders if holder.id != self._entry.id]
            if len(others) == len(holders):
                raise _EntryGone
            return [*others, self._renewed()]

        while not stop.wait(self._times.renew_seconds):
            try:
                self._update(extend)
            except _EntryGone:
                self._valid_until = 0.0
                return
            except (OSError, StorageError):
                continue  # the entry may last long enough for the next renewal; ensure_held tells

    def release(self) -> None:
        """Remove the entry; if the store cannot be reached, the entry expires."""
        self._valid_until = 0.0
        with contextlib.suppress(OSError, StorageError):
            self._update(lambda holders: [holder for holder in holders if holder.id != self._entry.id])

    def _renewed(self) -> Holder:
        return replace(self._entry, expires_at=time.time() + self._times.lease_seconds)

    def _update(self, change: Callable[[list[Holder]], list[Holder]]) -> None:
        """Replace the list of holders by the result of ``change``."""
        for _ in range(_MAX_UPDATES):
            found = self._objects.read(self._key)
            began = time.monotonic()
            holders = change(self._parse(found[0]) if found else [])
            data = json.dumps({"holders": [asdict(holder) for holder in holders]}, indent=1).encode()
            try:
                if found is None:
                    self._objects.create(self._key, data)
                else:
                    self._objects.replace(self._key, data, found[1])
            except (FileExistsError, ObjectChanged):
                time.sleep(random.uniform(0, _UPDATE_PAUSE_SECONDS))
                continue
            self._valid_until = began + self._times.lease_seconds
            return
        raise StorageError(
            f"could not update the lock {self._name} after {_MAX_UPDATES} attempts: "
            "too many processes update it",
            "run again in a minute",
        )

    def _parse(self, data: bytes) -> list[Holder]:
        try:
            return [Holder(**entry) for entry in json.loads(data)["holders"]]
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{self._name} is not a lock of Shardmill: {error}",
                "delete it, once nothing works on the dataset",
            ) from error

    def _locked_by(self, other: Holder) -> LockedError:
        left = max(other.expires_at + self._times.clock_seconds - time.time(), 0)
        return LockedError(
            f"another process (pid {other.pid} on {other.host}) is busy with {self._purpose}; "
            f"it locks {self._name}",
            f"wait for it to end, or stop it; if it is dead, its lock ends in {left:.0f} seconds",
        )


class _EntryGone(Exception):
    """Another process removed the entry, since it was not renewed in time."""


@functools.cache
def _machine() -> str:
    """Return a name that is equal in all processes that can see each other's process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return f"{socket.gethostname()}/{uuid.getnode()}"


def _started(pid: int) -> int:
    """Return when a process of this machine started (clock ticks since the boot); -1 if there is none."""
    try:
        # proc(5): the name of the program, in brackets, may hold spaces; the state is the next field.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1 if Path("/proc/self/stat").exists() else 0  # 0: not Linux, nobody can tell
    return -1 if fields[0] == "Z" else int(fields[19])
