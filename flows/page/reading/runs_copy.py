"""Keep a copy of the runs of an object store fresh, for the page and TensorBoard, which read files.

Lock files are looked at, not tried: that would take a lock for a moment, and a training that begins at that
moment would be refused.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from shardmill.infra.storage.locations import public_location
from shardmill.training.run.files.stored import fetch_runs

LOG = logging.getLogger("shardmill.page")

_LEAST_SECONDS = 10.0  # trainings upload as often
_PAUSE_FACTOR = 4  # with many runs, copying takes at most a fifth of the time
_STOP_SECONDS = 5.0


class RunsCopy:
    """Copies the results and the logs of all runs of a store to this machine, again and again, on a thread.

    Attributes:
        uri: the folder of the runs, without credentials.
        problem: why the copy is not fresh, for people; None: it is.
    """

    def __init__(self, runs: str) -> None:
        self.uri = public_location(runs)
        self.problem: str | None = f"The runs of {self.uri} are being copied to this machine: reload soon"
        self._runs = runs
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="shardmill-runs-copy", daemon=True)

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def close(self) -> None:
        """Stop soon; a copying that takes longer ends with the process."""
        self._stopped.set()
        self._thread.join(_STOP_SECONDS)

    def _copy(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            began = time.monotonic()
            try:
                fetch_runs(self._runs, with_logs=True)
                self.problem = None
            except Exception as error:  # noqa: BLE001  the next copying may succeed
                LOG.warning("cannot copy the runs of %s: %s", self.uri, error)
                self.problem = (
                    f"The runs of {self.uri} cannot be copied to this machine; "
                    f"those that were copied before are shown: {error}"
                )
            pause = max(_LEAST_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began))


_PROC_LOCKS = Path("/proc/locks")


def held_locks(folder: Path) -> Mapping[str, bool]:
    """Return name of a file -> whether a process of this machine holds a lock on it.

    Empty where the kernel does not tell (not Linux), or without the folder.
    """
    try:
        held = {_inode(line) for line in _PROC_LOCKS.read_text("ascii", "replace").splitlines()}
        with os.scandir(folder) as entries:
            return {entry.name: entry.inode() in held for entry in entries}
    except OSError:
        return {}


def _inode(line: str) -> int:
    """Return the inode of a line such as ``1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF``; -1 if none."""
    parts = line.split()
    # A line with an arrow tells of a process that waits for the lock.
    place = parts[5] if len(parts) > 5 and parts[1] != "->" else ""
    return int(place.rpartition(":")[2]) if place.count(":") == 2 else -1
