"""Output of a child process: its events and lines, read on threads of their own until it closes them."""

from __future__ import annotations

import collections
import contextlib
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from shardmill.infra.processes.trees import GRACE_SECONDS
from shardmill.infra.progress import Listener

_LAST_LINES = 40


class ChildOutput:
    """Two threads that read a child's events and lines, keep its result and error, and pass them on."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        events: IO[bytes],
        on_event: Listener | None,
        on_line: Callable[[str], None] | None,
        log_path: str | Path | None,
    ) -> None:
        self.result: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self._lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._on_event, self._on_line, self._log_path = on_event, on_line, log_path
        assert process.stdout is not None
        self._threads = [
            threading.Thread(target=self._read_events, args=(events,), daemon=True),
            threading.Thread(target=self._read_lines, args=(process.stdout,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def tail(self) -> list[str]:
        """The last lines."""
        return list(self._lines)

    def finish(self) -> None:
        """Wait for the last output of the child, but not for ever: a stray grandchild may hold the pipes."""
        for thread in self._threads:
            thread.join(timeout=GRACE_SECONDS)

    def _read_events(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # the last line of a child that was killed while it wrote
                if event.get("event") == "result":
                    self.result = event["result"]
                elif event.get("event") == "error":
                    self.error = event
                if self._on_event is not None:
                    self._on_event(event)

    def _read_lines(self, stream: IO[bytes]) -> None:
        with contextlib.ExitStack() as files:
            files.enter_context(stream)
            log = files.enter_context(Path(self._log_path).open("a")) if self._log_path else None
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                self._lines.append(line)
                if log is not None:
                    log.write(line + "\n")
                    log.flush()
                if self._on_line is not None:
                    self._on_line(line)
