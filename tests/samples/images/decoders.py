"""Functions that stand for image decoders; a sandbox finds them by their names."""

from __future__ import annotations

import os
import time
from pathlib import Path


def misbehaving(data: bytes) -> tuple[dict[str, object], bytes]:
    """A header and no thumbnail; or a crash, a hang or a memory error, as the content says."""
    if data == b"abort":
        os.abort()
    if data == b"hang":
        time.sleep(600)
    if data == b"eat":
        bytearray(1 << 40)
    return {"format": "FINE", "width": len(data), "height": 1}, b""


def abort(_: bytes) -> None:
    """Crash."""
    os.abort()


def kill(_: bytes) -> None:
    """End as a process that the system chooses when memory runs out."""
    os.kill(os.getpid(), 9)


def leave(_: bytes) -> None:
    """End the process without an error."""
    os._exit(0)


def hang(_: bytes) -> None:
    """Never return."""
    time.sleep(600)


def spin(_: bytes) -> None:
    """Never return, and use the processor."""
    while True:
        pass


def need_memory(data: bytes) -> int:
    """Take as many MiB of memory as the content says; returns the length of it."""
    return len(b"x" * (int(data) << 20))


def crash_without_memory(data: bytes) -> None:
    """Crash where so many MiB of memory cannot be had, as a library does that does not check."""
    try:
        need_memory(data)
    except MemoryError:
        os.abort()


def refuse(_: bytes) -> None:
    """Raise an error."""
    raise ValueError("no image")


def write(data: bytes) -> None:
    """Write a file: the content is its path and what is written."""
    Path(data.decode()).write_bytes(data)


def variable(data: bytes) -> str | None:
    """Return a variable of the environment."""
    return os.environ.get(data.decode())
