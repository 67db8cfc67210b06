"""Progress as JSON lines, from a child process to its parent, and its display in a terminal.

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

Each carries ``time`` (seconds since 1970). ``events`` emits them, ``whole_job`` adds them up to one figure,
and ``terminal`` shows them to a person.
"""

from __future__ import annotations

from shardmill.infra.progress.events import (
    EVENTS_FD,
    Event,
    Listener,
    adopt_parent,
    emit,
    events_go_to_parent,
    failure,
    is_heard,
    job,
    log,
    metrics,
    progress,
    result,
    stage,
    subscribe,
    waiting,
    work_clock,
)
from shardmill.infra.progress.terminal import TerminalProgress, shown_to_people
from shardmill.infra.progress.whole_job import WAITING, WholeJob

__all__ = [
    "EVENTS_FD",
    "WAITING",
    "Event",
    "Listener",
    "TerminalProgress",
    "WholeJob",
    "adopt_parent",
    "emit",
    "events_go_to_parent",
    "failure",
    "is_heard",
    "job",
    "log",
    "metrics",
    "progress",
    "result",
    "shown_to_people",
    "stage",
    "subscribe",
    "waiting",
    "work_clock",
]
