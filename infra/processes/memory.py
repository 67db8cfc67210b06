"""The memory that is free on this machine, or in this container."""

from __future__ import annotations

from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def free_memory_bytes() -> int:
    """Return how much memory processes may still take here (bytes)."""
    free = psutil.virtual_memory().available
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no container
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))
