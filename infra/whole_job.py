"""How far a whole job is, and how long it still takes: one figure of its events, and its display."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from shardmill.infra.progress import Event, events_go_to_parent, subscribe, work_clock
from shardmill.infra.readable import printable, readable_figure, readable_seconds

_LOST_SHOWN = 5
WAITING = "waiting until "  # begins the text of a job that waits for another one

# What an event of progress says besides the figures of a training.
_NOT_FIGURES = frozenset(
    {"event", "time", "stage", "done", "total", "unit", "per_second", "images_per_second", "epoch", "epochs"}
)

_COUNTED_TOGETHER = 10  # units; the rate of fewer says nothing


class WholeJob:
    """The progress of a whole job. It never falls, even if the job repeats stages.

    Without a ``job`` event, which names the main stages, each stage counts as a whole job.

    Attributes:
        name: name of the job; empty: no job has begun.
        share: share of the job that is done, from 0 to 1.
        stage: the stage that runs.
        waits_until: the other job that this one waits for; empty: it does not wait.
    """

    def __init__(self) -> None:
        self._begin("", {})
        self.waits_until = ""

    def _begin(self, name: str, shares: Mapping[str, float]) -> None:
        whole = sum(shares.values())
        self.name, self.share, self.stage = name, 0.0, ""
        self._shares = {stage: share / whole for stage, share in shares.items() if share}
        self._done, self._rate, self._unit = 0, 0.0, ""
        self._shown_rate = 0.0
        self._total: int | None = None
        self._epoch: Event = {}  # the latest event with an epoch and its figures

    def take(self, event: Event) -> None:
        """Count an event; all kinds but those of progress are ignored."""
        kind = event.get("event")
        if kind == "job":
            self._begin(str(event["job"]), event["shares"])
        elif kind == "waiting":
            self.waits_until = str(event["until"])
        elif kind in ("stage", "progress"):
            self._count(event)

    def counts(self, stage: str) -> bool:
        """Return whether the share of the job grows with a stage."""
        return not self._shares or stage in self._shares

    def _count(self, event: Event) -> None:
        before, self.stage = self.stage, str(event["stage"])
        self._done, self._total = event.get("done") or 0, event.get("total")
        self._unit = str(event.get("unit", ""))
        self._rate = event.get("per_second") or 0.0
        # The speed that a training reports leaves validations out; the time left, by events, includes them.
        self._shown_rate = event.get("images_per_second") or self._rate
        within = min(1.0, self._done / self._total) if self._total else 0.0
        if not self._shares:
            self.share = within
        elif self.stage in self._shares:
            self.share = max(self.share, min(1.0, self._before + self._shares[self.stage] * within))
        if "epoch" in event:
            self._epoch = event
        elif self.stage in self._shares and self.stage != before:
            self._epoch = {}

    @property
    def _before(self) -> float:
        """The share of the stages before this one."""
        names = list(self._shares)
        return sum(self._shares[name] for name in names[: names.index(self.stage)])

    @property
    def seconds_left(self) -> float | None:
        """The time that the job still takes at the present rate; None if that is not known."""
        if not self._rate or not self._total or self._done <= 0:
            return None
        left = max(0, self._total - self._done) / self._rate
        if not self._shares:
            return left
        if self.stage not in self._shares:
            return None
        later = 1.0 - self._before - self._shares[self.stage]
        return left + later * (self._total / self._rate) / self._shares[self.stage]

    def text(self) -> str:
        """Return the stage or epoch, its figures, the rate and the time left, for people."""
        if self.waits_until:
            return f"{WAITING}{self.waits_until} has ended"
        of = f"{self._done:,}" if self._total is None else f"{self._done:,} of {self._total:,}"
        of = f"{of} {self._unit}".rstrip()
        parts = [f"{self.stage}: {of}"]
        if self._epoch:
            epoch = f"epoch {self._epoch['epoch']} of {self._epoch['epochs']}"
            parts = [epoch if self._epoch["stage"] == self.stage else f"{epoch}, {parts[0]}"]
            parts += [f"{name.replace('_', ' ')} {readable_figure(value)}" for name, value in self._figures()]
        if self._shown_rate and (self._total is None or self._total >= _COUNTED_TOGETHER):
            parts.append(f"{self._shown_rate:,.0f} {self._unit}/s")
        left = self.seconds_left
        if left is not None and self._done < (self._total or 0):
            parts.append(f"about {readable_seconds(left)} left")
        return ", ".join(parts)

    def _figures(self) -> list[tuple[str, float]]:
        return [
            (name, value)
            for name, value in self._epoch.items()
            if name not in _NOT_FIGURES and isinstance(value, int | float)
        ]


@dataclass
class StageTimes:
    """The wall time and the processor time of each stage of a job (seconds).

    Attributes:
        seconds: stage -> wall time.
        cpu_seconds: stage -> processor time of this process, and of others where it is added.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=work_clock)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of the block to the stage, unless the block raises an exception."""
        started, cpu_started = work_clock(), time.process_time()
        yield
        seconds, cpu_seconds = work_clock() - started, time.process_time() - cpu_started
        self.seconds[name] = round(self.seconds.get(name, 0) + seconds, 3)
        self.add_cpu_seconds(name, cpu_seconds)

    def add_cpu_seconds(self, name: str, cpu_seconds: float) -> None:
        """Add to the processor time of a stage (seconds)."""
        self.cpu_seconds[name] = round(self.cpu_seconds.get(name, 0) + cpu_seconds, 3)

    def since_start(self) -> float:
        """Return the wall time since the job began, without waiting (seconds)."""
        return work_clock() - self._started


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

    A job has one bar, which grows over all its stages and epochs. A listener and a context manager::

        with TerminalProgress() as show:
            run_child(argv, on_event=show)
    """

    _PLAIN_SECONDS = 2.0

    def __init__(self, *, live: bool | None = None) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._bars: Any = None
        self._bar: tuple[str, Any] | None = None  # the name of the job or stage, and its bar
        self._job = WholeJob()
        self._last_line = 0.0

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
        self._job.take(event)
        if kind == "log":
            self.say(str(event["message"]), level=str(event.get("level", "info")))
        elif kind in ("stage", "progress"):
            if self._bars is not None:
                self._show_bar()
            else:
                self._show_line(event, begins=kind == "stage")
        elif kind == "metrics" and event.get("split") == "validation" and "epoch" in event:
            self.say(_epoch_line(event))
        elif kind == "lost":
            self._show_lost(event)
        elif kind == "result" and self._job.name:
            if self._bar is not None:
                self._bars.update(self._bar[1], completed=1.0, text="")
            self._bar = None

    def say(self, message: str, level: str = "info") -> None:
        """Print a line above the bar."""
        text = printable(message if level == "info" else f"{level}: {message}", keep="\n\t")
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def _show_bar(self) -> None:
        name = self._job.name or self._job.stage
        if self._bar is None or self._bar[0] != name:
            self._bar = name, self._bars.add_task(name, total=1.0, text="")
        self._bars.update(self._bar[1], completed=self._job.share, text=self._job.text())

    def _show_line(self, event: Event, *, begins: bool) -> None:
        done, total, now = event.get("done", 0), event.get("total"), time.monotonic()
        finished = total is not None and done >= total
        # The validations of a training are many and short.
        is_bound = (begins or finished) and self._job.counts(str(event["stage"]))
        if not (is_bound or now - self._last_line >= self._PLAIN_SECONDS):
            return
        self._last_line = now
        percent = f"{self._job.share:4.0%} " if self._job.name else ""
        print(f"{percent}{self._job.text()}", file=sys.stderr, flush=True)

    def _show_lost(self, event: Event) -> None:
        """Name the first inputs that cannot be used."""
        inputs = event.get("inputs", [])
        for lost in inputs[:_LOST_SHOWN]:
            self.say(
                f"{lost['reason']}: {lost['uri']}" + (f" ({lost['message']})" if lost["message"] else "")
            )
        left_out = sum(event.get("reasons", {}).values()) - len(inputs[:_LOST_SHOWN])
        if left_out > 0:
            self.say(f"and {left_out:,} more")


def _epoch_line(event: Event) -> str:
    """Return the loss and the main figure of a validation."""
    names = [
        name for name, value in event.items() if isinstance(value, float) and name not in ("time", "loss")
    ]
    figures = [
        f"{name.replace('_', ' ')} {readable_figure(event[name])}"
        for name in ("loss", *names[:1])
        if name in event
    ]
    return f"epoch {event['epoch']}: validation {', '.join(figures)}"


def _rich_bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),  # goes on between two blocks
        TextColumn(
            "{task.fields[text]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
        ),
        console=Console(stderr=True),
    )
