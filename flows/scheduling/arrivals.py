"""Decide when to take up the new files of an inbox: in batches, once they no longer change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmill.infra.storage.filesystem import FileEntry

_State = tuple[int, int]  # size (bytes) and time of change (ns)


@dataclass(frozen=True, slots=True)
class Batching:
    """The conditions for taking up a batch.

    Attributes:
        settle_seconds: a file is taken when its size and time have not changed for so long.
        files: a batch is taken up when it has so many files,
        within_seconds: or when its first file has waited so long.
    """

    settle_seconds: float = 10.0
    files: int = 100
    within_seconds: float = 60.0


class Arrivals:
    """The new files of one inbox that no run has taken up yet.

    After a start, all files count as new, so that none that arrived meanwhile is missed. A run that finds
    nothing new ends in seconds.
    """

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._taken: dict[str, _State] = {}
        self._before: dict[str, _State] = {}
        self._seen: dict[str, tuple[_State, float]] = {}

    def observe(self, files: Mapping[str, FileEntry], now: float) -> int:
        """Look at a listing of the inbox.

        Args:
            files: the files that are in the inbox now.
            now: when it was listed (seconds of a clock that never goes back).

        Returns:
            The number of files of the batch that is due now; 0 if none is. They count as taken up from then.
        """
        states = {path: (entry.size_bytes, entry.mtime_ns) for path, entry in files.items()}
        self._seen = {
            path: self._seen[path] if path in self._seen and self._seen[path][0] == state else (state, now)
            for path, state in states.items()
            if self._taken.get(path) != state
        }
        settled = {
            path: since
            for path, (_, since) in self._seen.items()
            if now - since >= self._batching.settle_seconds
        }
        if not settled:
            return 0
        waited = now - min(settled.values())
        if len(settled) < self._batching.files and waited < self._batching.within_seconds:
            return 0
        self._before = dict(self._taken)
        self._taken |= {path: states[path] for path in settled}
        self._taken = {path: state for path, state in self._taken.items() if path in states}
        return len(settled)

    def give_back(self) -> None:
        """Count the last batch as not taken up, because its run failed."""
        self._taken = dict(self._before)
