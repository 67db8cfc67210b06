"""``logs/ranks/balance.jsonl``: what each rank did in each epoch, one line per epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from shardmill.infra import progress as events
from shardmill.infra.strict_json import dump_json
from shardmill.training.arrays import Ints
from shardmill.training.order import Order
from shardmill.training.ranks.peers import Peers
from shardmill.training.reading import SplitTable
from shardmill.training.results.run_files.rank_balance import (
    BALANCE_FILE,
    RankBalance,
    read_balance,
    waiting_seconds,
)
from shardmill.training.run.sharing.division import Division

_TELL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RankLabels:
    """The classes of a split, one or several of each record.

    Attributes:
        names: their names; none if a record has no label that is a class.
        table: the records.
    """

    names: Sequence[str]
    table: SplitTable

    @classmethod
    def of(cls, names: Sequence[str], table: SplitTable) -> RankLabels:
        """Return the classes of the records of a split, given the names of its dataset version.

        The classes of masks are those of pixels, so they have none.
        """
        return cls([] if table.mask is not None else names, table)

    def counts(self, ordinals: Ints) -> Ints:
        """Return the number of records of each class among some: int64 [C]."""
        if not self.names:
            return np.zeros(0, np.int64)
        labels = self.table.labels_of(ordinals)
        if labels.ndim > 1:
            return np.asarray(labels.sum(axis=0), np.int64)
        return np.asarray(np.bincount(labels.astype(np.int64), minlength=len(self.names)), np.int64)


@dataclass(slots=True)
class _StepTimes:
    """Sums over steps (seconds).

    Attributes:
        num_steps: the steps.
        seconds: their times.
        input_seconds: the parts of them spent waiting for data.
        num_waits: the steps of which is known how long the rank waited for others.
        waited_seconds: these waits.
    """

    num_steps: int = 0
    seconds: float = 0.0
    input_seconds: float = 0.0
    num_waits: int = 0
    waited_seconds: float = 0.0

    def add(self, seconds: float, input_seconds: float, waited_seconds: float | None) -> None:
        """Add a step."""
        self.num_steps += 1
        self.seconds += seconds
        self.input_seconds += input_seconds
        if waited_seconds is not None:
            self.num_waits += 1
            self.waited_seconds += waited_seconds

    def means(self) -> tuple[float, float, float | None]:
        """Return the mean time of a step, of its wait for data, and of its wait for other ranks."""
        steps = max(self.num_steps, 1)
        waited = self.waited_seconds / self.num_waits if self.num_waits else None
        return self.seconds / steps, self.input_seconds / steps, waited


class BalanceRecord:
    """Counts the steps of this rank, and writes the counts of all ranks at the end of each epoch.

    Times are those of the steps that this process took; an epoch that was resumed has fewer of them.
    """

    def __init__(
        self, run_dir: Path, ranks: Peers, device: str, division: Division, order: Order, labels: RankLabels
    ) -> None:
        """Begin to count.

        Args:
            run_dir: the folder of the run.
            ranks: the ranks.
            device: the name of this rank's device.
            division: the rows of each rank.
            order: the order of the train split.
            labels: the classes of the train split.
        """
        self._run_dir = run_dir
        self._path = run_dir / BALANCE_FILE
        self._ranks = ranks
        self._device = device
        self._division = division
        self._order = order
        self._labels = labels
        self._waited: Callable[[], float | None] = lambda: None
        self._waited_before: float | None = None
        self._epoch, self._recent = _StepTimes(), _StepTimes()
        self._told_at = time.monotonic()

    def measure_waiting(self, waited: Callable[[], float | None]) -> None:
        """Count how long this rank waits for others.

        Args:
            waited: returns the time for which it has waited so far (seconds); None: not known.
        """
        self._waited = waited

    def count_step(self, run_step: int, seconds: float, input_seconds: float) -> None:
        """Count a step, its time and its wait for data; report to the parent from time to time."""
        before, now = self._waited_before, self._waited()
        self._waited_before = now
        waited = None if now is None or before is None else now - before
        for times in (self._epoch, self._recent):
            times.add(seconds, input_seconds, waited)
        if time.monotonic() - self._told_at >= _TELL_SECONDS:
            self._tell(run_step)

    def _tell(self, run_step: int) -> None:
        self._told_at = time.monotonic()
        events.emit({"event": "rank", "step": run_step, **self._now()})

    def _now(self) -> dict[str, Any]:
        """Return the figures of this rank since its last report."""
        rank, rows = self._ranks.rank, self._division.rows
        mean, waited, waited_for_ranks = self._recent.means()
        self._recent = _StepTimes()
        return {
            "rank": rank,
            "device": self._device,
            "share": rows[rank] / sum(rows),
            "step_seconds": mean,
            "input_wait_fraction": waited / mean if mean else 0.0,
            "waiting_seconds": waiting_seconds(mean, waited, self._compute_seconds(rank), waited_for_ranks),
            "memory_process_bytes": int(psutil.Process().memory_info().rss),
        }

    def _compute_seconds(self, rank: int) -> float | None:
        """Return the measured time of a rank's rows of a step; None: it was not measured."""
        speeds = self._division.seconds_per_example
        return None if speeds is None else self._division.rows[rank] * speeds[rank]

    def end_epoch(self, epoch: int) -> None:
        """Write the line of ``epoch`` (from 0), which has ended, on rank 0. Every rank must call this."""
        if self._recent.num_steps:
            self._tell((epoch + 1) * self._order.steps_per_epoch)
        rows = self._ranks.all_values(self._own_row(epoch))
        self._epoch = _StepTimes()
        if self._ranks.is_first:
            line = {"epoch": epoch + 1, "classes": list(self._labels.names), "ranks": rows}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(dump_json(line) + "\n")

    def latest(self) -> RankBalance | None:
        """Return the balance of the last epoch that ranks have ended; None: there is none in this folder."""
        return read_balance(self._run_dir) if self._path.is_file() else None

    def _own_row(self, epoch: int) -> dict[str, Any]:
        rank = self._ranks.rank
        step_seconds, input_seconds, waited_seconds = self._epoch.means()
        counts, examples = self._class_counts(epoch)
        return {
            "rank": rank,
            "device": self._device,
            "rows": self._division.rows[rank],
            "examples": examples,
            "class_counts": counts.tolist(),
            "num_steps": self._epoch.num_steps,
            "step_seconds": step_seconds,
            "input_seconds": input_seconds,
            "compute_seconds": self._compute_seconds(rank),
            "waited_seconds": waited_seconds,
        }

    def _class_counts(self, epoch: int) -> tuple[Ints, int]:
        """Return the real examples of each class in this rank's part of an epoch, int64 [C], and of all."""
        own = self._division.slice_of(self._ranks.rank)
        counts, examples = np.zeros(len(self._labels.names), np.int64), 0
        for step in range(self._order.steps_per_epoch):
            plan = self._order.step(epoch, step).of_rows(own)
            real = plan.ordinals[plan.weights > 0]
            counts += self._labels.counts(real)
            examples += int(real.size)
        return counts, examples
