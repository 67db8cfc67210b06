"""``consumed.jsonl``: the ids of all records that a run trained on, step by step."""

from __future__ import annotations

import os
from pathlib import Path

from shardmill.infra import progress as events
from shardmill.infra.strict_json import dump_json


class ConsumedTrace:
    """Appends a line for each step. A resumed run first removes the lines after its checkpoint."""

    def __init__(self, path: Path, num_bytes: int) -> None:
        """Open the file and cut it to ``num_bytes``, its length at the checkpoint."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        found = self._file.tell()
        if found < num_bytes:
            events.log(f"{path} was shortened by somebody: its first steps are incomplete", level="warning")
        self._file.truncate(min(num_bytes, found))
        self._file.seek(0, os.SEEK_END)

    def add(self, epoch: int, step: int, ids: list[str]) -> None:
        """Write the ids of a step's real examples, in the order of the global batch."""
        line = dump_json({"epoch": epoch, "step": step, "ids": ids}, separators=(",", ":"))
        self._file.write(line.encode("ascii") + b"\n")

    def flush(self) -> int:
        """Give all lines to the system; returns the file's length (bytes), for the checkpoint."""
        self._file.flush()
        return self._file.tell()

    def sync(self) -> None:
        """Put on disk what was flushed. Another thread may add lines meanwhile."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
