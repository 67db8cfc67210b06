"""Where the seconds of a demo go: when each part begins and ends, by the events of its jobs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardmill.infra.progress import Event

BETWEEN_JOBS = "record the results"
_WIDTH = 24  # of the bars
# The main stages of the jobs, in words; a stage that is not here belongs to the one before.
_STAGES = {
    "list": "list the files",
    "encode": "check and encode images",
    "plan": "plan splits and shards",
    "assemble": "write the shards",
    "publish": "report and publish",
    "train": "learn",
    "evaluate": "evaluate the best model",
    "export": "export the model",
    "compare": "try the export on files",
    "report": "write the report",
}


@dataclass(slots=True)
class Part:
    """A part of the demo. Begin and end are seconds since 1970."""

    name: str
    begin: float
    end: float


class TimeLine:
    """Collects the parts of a demo, one after the other; some run beside them.

    It is a listener of the events of ``shardmill.infra.progress``.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._job = ""
        self._now = Part("start this command", psutil.Process().create_time(), 0.0)
        self.parts.append(self._now)

    def begin(self, name: str, at: float | None = None) -> None:
        """End the part of now, and begin another one; one of the same name goes on."""
        at = time.time() if at is None else at
        self.end(at)
        if name == self._now.name:
            return
        self._now = Part(name, at, at)
        self.parts.append(self._now)

    def end(self, at: float | None = None) -> None:
        """End the part of now."""
        self._now.end = time.time() if at is None else at

    def beside(self, name: str) -> Part:
        """Return a part that begins now, beside the others."""
        now = time.time()
        self.parts.append(Part(name, now, now))
        return self.parts[-1]

    @property
    def seconds(self) -> float:
        """The time from the first begin to the last end."""
        return max(part.end for part in self.parts) - self.parts[0].begin

    def __call__(self, event: Event) -> None:
        """Take an event of a job."""
        kind, at = event["event"], float(event["time"])
        if kind == "job":
            self._job = str(event["job"])
            self.begin(BETWEEN_JOBS, at)  # unless it is tried again, this is so already
            self._now.name = f"{self._job}: start"
        elif kind == "stage":
            words = _STAGES.get(str(event["stage"]).partition(" ")[0])
            if words:
                self.begin(f"{self._job}: {words}", at)
        elif kind == "result":
            self.begin(BETWEEN_JOBS, at)

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return the begin and the length of each part (seconds)."""
        first = self.parts[0].begin
        return {
            part.name: {"from": round(part.begin - first, 3), "seconds": round(part.end - part.begin, 3)}
            for part in self.parts
        }

    def print(self, console: Console) -> None:
        """Print a table with a bar for each part, all on the same axis."""
        parts = sorted(self.parts, key=lambda part: part.begin)
        first, scale = parts[0].begin, _WIDTH / self.seconds
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            title="Where the seconds went",
            title_justify="left",
            title_style="bold",
        )
        table.add_column("part", no_wrap=True)
        table.add_column("from", justify="right")
        table.add_column("seconds", justify="right", no_wrap=True)
        table.add_column("", min_width=_WIDTH, no_wrap=True)
        for part in parts:
            begin, end = round((part.begin - first) * scale), round((part.end - first) * scale)
            colour = "green" if part.name.startswith("train") else "blue"
            bar = Text(" " * begin) + Text("█" * (end - begin) or "▏", colour)
            table.add_row(Text(part.name), f"{part.begin - first:.1f}", f"{part.end - part.begin:.1f}", bar)
        console.print(table)
