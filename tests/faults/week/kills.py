"""Random kills of a platform's processes, the descendants of a killed process, and the table of the kills."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults.week.database import KillableDatabase
from tests.faults.week.platform import Platform
from tests.faults.week.victims import DATABASE, KINDS, by_kind, lives, processes_of


@dataclass
class Kills:
    """Kills processes at random, and measures how long their descendants live on.

    Attributes:
        platform: whose processes are killed.
        database: of the platform; None: its file, which nobody kills.
        choice: chooses.
        counts: kills by kind.
        longest_seconds: kind -> the longest time after which all descendants of a victim were gone.
    """

    platform: Platform
    database: KillableDatabase | None
    choice: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    longest_seconds: dict[str, float] = field(default_factory=dict)
    _dying: list[tuple[str, float, list[psutil.Process]]] = field(default_factory=list)

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
            below = victim.children(recursive=True)
            victim.kill()
        except psutil.NoSuchProcess:
            return None
        self.counts[kind] += 1
        self._dying.append((kind, time.monotonic(), below))
        return kind

    def watch(self) -> None:
        """Note for how long the descendants of the victims lived on."""
        for entry in list(self._dying):
            kind, killed, below = entry
            living = [process for process in below if lives(process)]
            seconds = time.monotonic() - killed
            self.longest_seconds[kind] = max(self.longest_seconds.get(kind, 0.0), seconds if living else 0.0)
            if not living:
                self._dying.remove(entry)

    def in_seconds(self) -> str:
        """The longest times in words."""
        return ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in sorted(self.longest_seconds.items()))


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
