"""Watch whether a process and its descendants use a processor."""

from __future__ import annotations

import time

import psutil

from shardmill.infra.processes.trees import descendants

_LOOK_SECONDS = 0.5
# Idle threads of TensorFlow, which only poll, use a third of this share. A larger share would be too much to
# expect of a rank that shares its processors with twenty other programs.
_LEAST_PART = 0.012
_LEAST_SECONDS = 0.05


class ProcessorUse:
    """Compares the processor time of a process and its descendants between two looks."""

    def __init__(self, pid: int) -> None:
        """Begin now."""
        self._pid = pid
        self._busy_at = self._looked_at = time.monotonic()
        self._used_seconds = self._used()

    def idle_seconds(self) -> float:
        """Return for how long they have neither used a processor nor waited for a disk (seconds)."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return self._looked_at - self._busy_at
        self._looked_at = now
        before, used = self._used_seconds, self._used()
        least = _LEAST_SECONDS + _LEAST_PART * (now - self._busy_at)
        if used is None or before is None or abs(used - before) > least:
            self._busy_at, self._used_seconds = now, used
        return now - self._busy_at

    def _used(self) -> float | None:
        """Return the processor time of all (seconds); None: one is gone, or waits for a disk."""
        seconds = 0.0
        try:
            for process in (psutil.Process(self._pid), *descendants(self._pid)):
                if process.status() == psutil.STATUS_DISK_SLEEP:
                    return None
                times = process.cpu_times()
                seconds += times.user + times.system
        except psutil.Error:
            return None
        return seconds
