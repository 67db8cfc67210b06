"""Find the lock files of a folder that are held now, without touching the locks.

Trying a lock would take it for a moment, and a training that begins at that moment would be refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

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
