"""Progress as JSON lines, from a child process to its parent and to the listeners of this process.

A process emits events; where its parent left a pipe (shardmill.infra.processes.children) they go there, a
JSON object a line, and listeners of this process get them in any case. Kinds of events::

    {"event": "job", "job": "prepare", "shares": {"list": 3, "encode": 75, ...}}
    {"event": "stage", "stage": "encode", "total": 3781, "unit": "images", "done": 0}
    {"event": "progress", "stage": "encode", "done": 256, "total": 3781, "unit": "images", "per_second": 812}
    {"event": "progress", "stage": "train", ..., "epoch": 2, "epochs": 8, "images_per_second": 343, ...}
    {"event": "waiting", "until": "train photos@1 (process 4711)"}
    {"event": "metrics", "split": "train", "epoch": 1, "step": 40, "loss": 0.7}
    {"event": "rank", "rank": 1, "step": 40, "step_seconds": 0.12, ...}
    {"event": "lost", "reasons": {"truncated": 3}, "meanings": {"truncated": ["The image ends early", "..."]},
     "inputs": [{"uri": "a.jpg", "reason": "truncated", "message": "...", "picture": "data:..."}]}
    {"event": "log", "level": "warning", "message": "..."}
    {"event": "result", "result": {...}}
    {"event": "error", "type": "DataError", "message": "...", "remedy": "...", "exit_code": 3}

Each carries ``time`` (seconds since 1970). ``shardmill.infra.whole_job`` adds them up to one figure and shows
them to a person.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from shardmill.infra.errors import ShardmillError
from shardmill.infra.strict_json import dump_json

EVENTS_FD = "SHARDMILL_EVENTS_FD"

Event = Mapping[str, Any]
Listener = Callable[[Event], None]

_lock = threading.Lock()
_parent_fd: int | None = None
_listeners: list[Listener] = []
_stage_started: dict[str, tuple[float, int]] = {}
_waits_since: float | None = None
_waited = 0.0  # seconds, in all waits that have ended


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


def is_heard() -> bool:
    """Tell whether an event reaches anybody now: a parent process or a listener of this process."""
    return _parent_fd is not None or bool(_listeners)


def emit(event: Event) -> None:
    """Send one event to the parent process and to this process's listeners."""
    event = {"time": round(time.time(), 3), **event}
    if _parent_fd is not None:
        line = dump_json(event, ensure_ascii=True, default=str).encode("ascii") + b"\n"
        # A parent that is gone is noticed by its lifeline (shardmill.infra.processes.children), not here.
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


def job(name: str, shares: Mapping[str, float], **facts: Any) -> None:
    """A job begins.

    Args:
        name: name of the job.
        shares: its main stages in their order, with the part of the time that each takes at a guess. What is
            shown of the whole job grows by these; other stages do not move it.
        facts: properties of the job for listeners, such as the folder that it writes to.
    """
    emit({"event": "job", "job": name, "shares": dict(shares), **facts})


def work_clock() -> float:
    """Return a time (seconds) that stands still while this process waits for its turn: waiting is no work."""
    now = time.monotonic()
    return now - _waited - (0.0 if _waits_since is None else now - _waits_since)


def stage(name: str, total: int | None = None, unit: str = "images", done: int = 0) -> None:
    """A stage of work begins; ``done`` of it is there from an earlier run."""
    _stage_started[name] = (work_clock(), done)
    emit({"event": "stage", "stage": name, "total": total, "unit": unit, "done": done})


def progress(name: str, done: int, total: int | None, unit: str = "images", **more: Any) -> None:
    """``done`` of ``total`` units of a stage are finished. The rate counts from the stage's begin."""
    started, before = _stage_started.get(name, (work_clock(), 0))
    elapsed = work_clock() - started
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


def waiting(until: str) -> None:
    """The job waits until another one has ended, such as ``train photos@1``; empty: it waits no more."""
    global _waits_since, _waited
    if until and _waits_since is None:
        _waits_since = time.monotonic()
    elif not until and _waits_since is not None:
        _waited, _waits_since = _waited + time.monotonic() - _waits_since, None
    emit({"event": "waiting", "until": until})


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
