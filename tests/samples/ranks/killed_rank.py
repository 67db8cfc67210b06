"""A rank that reads in a process of its own, to be killed: what it was given by then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


class Rank:
    """One rank's process.

    Attributes:
        process: it.
        lines: what it said of each batch so far.
    """

    def __init__(self, module: str, **told: Any) -> None:
        """Start a module that takes what it is told as JSON, and prints a line of JSON for each batch."""
        argv = [sys.executable, "-m", module, json.dumps(told)]
        self.process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []

    def read(self, count: int) -> None:
        """Wait until it was given so many batches."""
        assert self.process.stdout is not None
        while len(self.lines) < count and (line := self.process.stdout.readline()):
            self.lines.append(json.loads(line))

    def finish(self) -> int:
        """Take what it still said; its exit status."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # the kill may have cut the last one short
                self.lines.append(json.loads(line))
        self.process.stdout.close()
        return self.process.wait(timeout=60)
