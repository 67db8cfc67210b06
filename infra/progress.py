"""Progress as JSON lines, from a child process to its parent, and its display in a terminal.

A process emits events; where its parent left a pipe (infra.processes.children) they go there, a JSON object
a line, and listeners of this process get them in any case. Kinds of events::

    {"event": "stage", "stage": "encode", "total": 3781, "unit": "images", "done": 0}
    {"event": "progress", "stage": "encode", "done": 256, "total": 3781, "unit": "images", "per_second": 812}
    {"event": "metrics", "split": "train", "epoch": 1, "step": 40, "loss": 0.7}
    {"event": "log", "level": "warning", "message": "..."}
    {"event": "result", "result": {...}}
    {"event": "error", "type": "DataError", "message": "...", "remedy": "...", "exit_code": 3}

Each carries ``time`` (seconds since 1970).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.errors import ShardmillError

EVENTS_FD = "SHARDMILL_EVENTS_FD"

Event = Mapping[str, Any]
Listener = Callable[[Event], None]

_lock = threading.Lock()
_parent_fd: int | None = None
_listeners: list[Listener] = []
_stage_started: dict[str, tuple[float, int]] = {}


def adopt_parent() -> None:
    """Take over the events pipe that a parent left in the environment, and hide it from own children."""
    global _parent_fd
    descriptor = os.environ.pop(EVENTS_FD, None)
    if descriptor is not None:
        _parent_fd = int(descriptor)
        os.set_inheritable(_parent_fd, False)


def events_go_to_parent() -> bool:
    """Tell whether a parent process listens; then nothing need be drawn for people here."""
    return _parent_fd is not None


def emit(event: Event) -> None:
    """Send one event to the parent process and to this process's listeners."""
    event = {"time": round(time.time(), 3), **event}
    if _parent_fd is not None:
        line = json.dumps(event, ensure_ascii=True, default=str).encode("ascii") + b"\n"
        # A parent that is gone is noticed by its lifeline (infra.processes.children), not here.
        with _lock, contextlib.suppress(BrokenPipeError):
            _write_all(_parent_fd, line)
    for listener in list(_listeners):
        listener(event)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call ``listener`` with every event emitted in this process; return a function that ends that."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def stage(name: str, total: int | None = None, unit: str = "images", done: int = 0) -> None:
    """A stage of work begins; ``done`` of it is there from an earlier run."""
    _stage_started[name] = (time.monotonic(), done)
    emit({"event": "stage", "stage": name, "total": total, "unit": unit, "done": done})


def progress(name: str, done: int, total: int | None, unit: str = "images", **more: Any) -> None:
    """``done`` of ``total`` units of a stage are finished. The rate counts from the stage's begin."""
    started, before = _stage_started.get(name, (time.monotonic(), 0))
    elapsed = time.monotonic() - started
    per_second = round((done - before) / elapsed, 1) if elapsed > 0 else 0.0
    emit(
        {
            "event": "progress",
            "stage": name,
            "done": done,
            "total": total,
            "unit": unit,
            "per_second": per_second,
            **more,
        }
    )


def log(message: str, level: str = "info") -> None:
    """A line for people: "info", "warning" or "error"."""
    emit({"event": "log", "level": level, "message": message})


def metrics(**values: Any) -> None:
    """Figures of a training step or an evaluation."""
    emit({"event": "metrics", **values})


def result(value: Mapping[str, Any]) -> None:
    """Emit the result of the whole process, which ``--json`` prints."""
    emit({"event": "result", "result": value})


def failure(error: ShardmillError) -> None:
    """The error that ends the process."""
    emit(error.to_event())


@contextlib.contextmanager
def shown_to_people() -> Iterator[None]:
    """Show this process's events on its terminal, unless a parent process listens, which does that."""
    if events_go_to_parent():
        yield
        return
    with TerminalProgress() as show:
        end = subscribe(show)
        try:
            yield
        finally:
            end()


class TerminalProgress:
    """Shows events to a person on standard error: a live bar on a terminal, plain lines elsewhere.

    A listener and a context manager::

        with TerminalProgress() as show:
            run_child(argv, on_event=show)
    """

    _PLAIN_SECONDS = 2.0

    def __init__(self, *, live: bool | None = None) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._last_line: dict[str, float] = {}

    def __enter__(self) -> TerminalProgress:
        if self._live:
            self._bars = _rich_bars()
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def __call__(self, event: Event) -> None:
        """Show an event."""
        kind = event.get("event")
        if kind == "log":
            self.say(str(event["message"]), level=str(event.get("level", "info")))
        elif kind in ("stage", "progress"):
            show = self._show_bar if self._bars is not None else self._show_line
            show(event, begins=kind == "stage")

    def say(self, message: str, level: str = "info") -> None:
        """Print a line above the bar."""
        text = message if level == "info" else f"{level}: {message}"
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def _show_bar(self, event: Event, *, begins: bool) -> None:
        name = str(event["stage"])
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=event.get("total"), rate="", unit="")
        rate = event.get("per_second")
        self._bars.update(
            self._tasks[name],
            completed=event.get("done", 0),
            total=event.get("total"),
            unit=event.get("unit", ""),
            rate=f"{rate:,.0f}/s" if rate else "",
        )

    def _show_line(self, event: Event, *, begins: bool) -> None:
        name, done, total = str(event["stage"]), event.get("done", 0), event.get("total")
        now = time.monotonic()
        finished = total is not None and done >= total
        if not (begins or finished or now - self._last_line.get(name, 0.0) >= self._PLAIN_SECONDS):
            return
        self._last_line[name] = now
        of = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        rate = f" ({event['per_second']:,.0f}/s)" if event.get("per_second") else ""
        print(f"{name}: {of} {event.get('unit', '')}{rate}", file=sys.stderr, flush=True)


def _rich_bars() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]} {task.fields[rate]}"),
        TimeElapsedColumn(),  # goes on between two blocks
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
