"""The exit status of a process in words."""

from __future__ import annotations

import signal

_NAMES = {number.value: number.name for number in signal.Signals}


def describe_status(status: int) -> str:
    """Return the signal that ended a process, or its status: "SIGSEGV", "signal 40" or "status 1".

    Args:
        status: the exit status; negative: the signal. Most real-time signals have no name in Python.
    """
    return _NAMES.get(-status, f"signal {-status}") if status < 0 else f"status {status}"
