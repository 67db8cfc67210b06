"""Random kills of a platform's processes, the descendants of a killed process, and the table of the kills."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from shardmill.infra.processes.process import num_cpus
from shardmill.infra.processes.trees import lives
from tests.faults.week.database import KillableDatabase
from tests.faults.week.platform import Platform
from tests.faults.week.victims import DATABASE, KINDS, by_kind
from tests.prefect_server.server import GONE_SECONDS, processes_of

_LOOK_SECONDS = 0.2


@dataclass
class Victim:
    """A killed process, and the processes below it.

    Attributes:
        kind: of the killed process.
        killed: time of the kill.
        below: descendant -> its command line.
        seconds: time after which the last look found one of them.
        last: the command lines of those that the last look found.
        load: the highest load of the machine meanwhile: processes that want to run, for each core.
    """

    kind: str
    killed: float
    below: dict[psutil.Process, str]
    seconds: float = 0.0
    last: list[str] = field(default_factory=list)
    load: float = 0.0

    def look(self) -> None:
        """Look at its descendants once more."""
        living = {process: line for process, line in self.below.items() if lives(process)}
        self.below = living
        if living:
            self.seconds, self.last = time.monotonic() - self.killed, list(living.values())
            self.load = max(self.load, os.getloadavg()[0] / num_cpus())

    @property
    def allowed_seconds(self) -> float:
        """The longest time for its descendants: ten seconds, times the load of an overloaded machine."""
        return GONE_SECONDS * max(1.0, self.load)


@dataclass
class Kills:
    """Kills processes at random, and measures how long their descendants live on, while it is ``watching``.

    Attributes:
        platform: whose processes are killed.
        database: of the platform; None: its file, which nobody kills.
        choice: chooses.
        counts: kills by kind.
    """

    platform: Platform
    database: KillableDatabase | None
    choice: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    _victims: list[Victim] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        """The kinds that can be killed here."""
        return [kind for kind in KINDS if kind != DATABASE or self.database is not None]

    def least(self) -> int:
        """Kills of the kind that was killed the fewest times."""
        return min(self.counts[kind] for kind in self.kinds)

    def is_at_work(self) -> bool:
        """Tell whether a flow runs, so that each kind may be found."""
        return bool(by_kind(processes_of(self.platform.home))["flow"])

    def one(self, *, of_the_least: bool) -> str | None:
        """Kill a process, and return its kind; None: none was found.

        Args:
            of_the_least: only of the kinds that were killed the fewest times. Else of any kind that was not
                killed much more often than another one that runs now.
        """
        found = {kind: some for kind, some in by_kind(processes_of(self.platform.home)).items() if some}
        if self.database is not None and (process := self.database.process()) is not None:
            found[DATABASE] = [process]
        if not found:
            return None
        most = self.least() if of_the_least else min(self.counts[kind] for kind in found) + 1
        kinds = [kind for kind in found if self.counts[kind] <= most]
        if not kinds:
            return None
        kind = self.choice.choice(kinds)
        victim = self.choice.choice(found[kind])
        try:
            below = {process: _command_line(process) for process in victim.children(recursive=True)}
            victim.kill()
        except psutil.NoSuchProcess:
            return None
        self.counts[kind] += 1
        self._victims.append(Victim(kind, time.monotonic(), below))
        return kind

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note for how long the descendants of victims live on, on a thread, until the block ends."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK_SECONDS):
                for victim in list(self._victims):
                    victim.look()

        thread = threading.Thread(target=watch, name="watch-victims", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def in_seconds(self) -> str:
        """Kind -> the longest time after which a descendant of a victim lived, in words."""
        longest: dict[str, float] = {}
        for victim in self._victims:
            longest[victim.kind] = max(longest.get(victim.kind, 0.0), victim.seconds)
        return ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in sorted(longest.items()))

    def late(self) -> list[str]:
        """Return the victims whose descendants lived too long, with the command lines of these."""
        return [
            f"{victim.kind}: {victim.seconds:.1f} s, {victim.allowed_seconds:.1f} s allowed: {victim.last}"
            for victim in self._victims
            if victim.seconds > victim.allowed_seconds
        ]


def _command_line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return "gone"


def add_to_record(record: Path | None, seed: int, minutes: float, counts: Counter[str]) -> str:
    """Add the kills of a run to a file of all runs; return a table of both."""
    lines = []
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": seed, "minutes": minutes, "kills": counts}) + "\n")
    total = sum((Counter(line["kills"]) for line in lines), start=Counter(counts))
    rows = [f"{'killed':<14}{'this run':>10}{f'all {len(lines) + 1} runs':>14}"]
    rows += [f"{kind:<14}{counts[kind]:>10}{total[kind]:>14}" for kind in KINDS]
    return "\n".join([*rows, f"{'together':<14}{counts.total():>10}{total.total():>14}"])
