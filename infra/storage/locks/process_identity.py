"""Tell a process from all others, also from a later one of the same number."""

from __future__ import annotations

import functools
import os
import socket
import uuid
from pathlib import Path


@functools.cache
def kernel() -> str:
    """Return a name that is equal in all processes of a machine, in any container, until it restarts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return f"{socket.gethostname()}/{uuid.getnode()}"


@functools.cache
def machine() -> str:
    """Return a name that is equal in all processes that can see each other's process ids."""
    try:
        return f"{kernel()}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return kernel()


def started_at(pid: int) -> int:
    """Return when a process of this machine started (clock ticks since the boot).

    -1 if there is no such process, and 0 if nobody can tell: not on Linux, or of another user whose processes
    are hidden (hidepid of proc(5)).
    """
    try:
        # proc(5): the name of the program, in brackets, may hold spaces; the state is the next field.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0 if _exists(pid) else -1
    return -1 if fields[0] == "Z" else int(fields[19])


def has_ended(pid: int, started: int) -> bool:
    """Tell whether the process that started then is known to have ended."""
    now = started_at(pid)
    return now == -1 or (0 not in (now, started) and now != started)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it may not be sent a signal
        return True
    return True
