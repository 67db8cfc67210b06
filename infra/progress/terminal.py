"""Show the events of a job to a person at a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from shardmill.infra.progress.events import Event, events_go_to_parent, subscribe
from shardmill.infra.progress.whole_job import WholeJob
from shardmill.infra.readable import printable, readable_figure

_LOST_SHOWN = 5


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
            self._show(event, begins=kind == "stage")
        elif kind == "metrics" and event.get("split") == "validation" and "epoch" in event:
            self.say(_epoch_line(event))
        elif kind == "lost":
            self._show_lost(event)
        elif kind == "result" and self._job.name:
            self._end_bar()

    def say(self, message: str, level: str = "info") -> None:
        """Print a line above the bar."""
        text = printable(message if level == "info" else f"{level}: {message}", keep="\n\t")
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def _show(self, event: Event, *, begins: bool) -> None:
        if self._bars is not None:
            self._show_bar()
        else:
            self._show_line(event, begins=begins)

    def _show_bar(self) -> None:
        name = self._job.name or self._job.stage
        if self._bar is None or self._bar[0] != name:
            self._bar = name, self._bars.add_task(name, total=1.0, text="")
        self._bars.update(self._bar[1], completed=self._job.share, text=self._job.text())

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bars.update(self._bar[1], completed=1.0, text="")
        self._bar = None

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
