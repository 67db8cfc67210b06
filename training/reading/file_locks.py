"""Locks of the kernel on files (``flock``): asked for without waiting, and gone with their holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def locks(descriptor: int, kind: int) -> bool:
    """Lock an open file, ``LOCK_SH`` or ``LOCK_EX``, without waiting; whether it could be."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Whether a process holds the exclusive lock on a file; False where it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not locks(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def remove_unused(path: Path) -> bool:
    """Remove a file that nobody has locked; whether this did it. What is gone may have another name now."""
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
