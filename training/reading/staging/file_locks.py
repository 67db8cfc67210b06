"""Lock files by ``flock`` without waiting. The kernel releases a lock when its holder ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def locks(descriptor: int, kind: int) -> bool:
    """Lock an open file (``LOCK_SH`` or ``LOCK_EX``) without waiting. Return whether it is locked now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether the open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Return whether a process holds the exclusive lock on a file; False if there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not locks(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def remove_unused(path: Path) -> bool:
    """Remove a file unless it is locked or was renamed meanwhile. Return whether it was removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        if not locks(descriptor, fcntl.LOCK_EX) or not is_at(descriptor, path):
            return False
        path.unlink()
        return True
    finally:
        os.close(descriptor)
