"""The parent of the ranks: start them where a launcher has places, and start all again when one fails.

An attempt ends when the first rank fails; all ranks are ended, and the next attempt continues from the last
checkpoint, with new ports, in the places that are then available. Only restarts in a row without a new step
count towards the limit.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.errors import GO_ON, DataError, EnvironmentFault, OutOfMemory, RankLost, UsageError
from shardmill.infra.processes.process import is_defect
from shardmill.infra.readable import counted
from shardmill.infra.strict_json import dump_json
from shardmill.training.ranks.devices import Slot
from shardmill.training.ranks.supervision.attempt import Attempt
from shardmill.training.ranks.supervision.outcomes import (
    Failed,
    Finished,
    Outcome,
    Regrown,
    Stopped,
    StopRequests,
    stop_requests,
)
from shardmill.training.ranks.supervision.running_rank import RunningRank
from shardmill.training.ranks.supervision.silence import Limits

_LONGEST_PAUSE_SECONDS = 60.0
_RECORD = "restarts.jsonl"


class RankHosts(ABC):
    """The places for ranks that a launcher has. They appear and disappear with their machines and devices."""

    @abstractmethod
    def choose(self, is_wanted: Callable[[], bool] = lambda: True) -> list[Slot]:
        """Return the places of the next attempt, one for each rank. It may wait for them.

        Args:
            is_wanted: returns whether the training is still wanted; if not, the list may be empty.

        Raises:
            EnvironmentFault: too few places are left.
        """

    @abstractmethod
    def has_more_than(self, used: Sequence[Slot]) -> bool:
        """Return whether there are more places than ``used``. It looks only now and then."""

    @abstractmethod
    def start(self, plan: RankPlan, slots: Sequence[Slot], scratch: Path) -> Iterator[RunningRank]:
        """Start a rank in each of the places that ``choose`` returned last, and yield each.

        Args:
            plan: the work of the ranks.
            slots: their places, by rank.
            scratch: a folder of this machine that is removed after the training.

        Raises:
            RankLost: a machine was lost meanwhile; the ranks that were already yielded still run.
        """

    @abstractmethod
    def note_attempt(self, failed_start: Slot | None) -> None:
        """Note how an attempt failed, so that bad places are left out, and tried again after progress.

        Args:
            failed_start: the place of a rank that failed before it began to train; None: steps were taken.
        """


@dataclass(frozen=True, slots=True)
class RankPlan:
    """The work of the ranks, and the limits of their supervision.

    Attributes:
        command: the command of a rank.
        log_folder: the folder of their logs on this machine.
        limits: when a rank counts as hung.
        max_restarts: the largest number of restarts in a row without a new step.
        preemption_signals: signals that ask the run to save and to end.
        hosts: the places for the ranks.
        more_parts: is called when a step did not fit into memory, with the number of ranks. It makes the
            ranks take each step in more parts from then on, and returns the number of parts; None: the parts
            cannot be smaller.
    """

    command: Sequence[str]
    log_folder: Path
    limits: Limits
    max_restarts: int
    preemption_signals: tuple[int, ...]
    hosts: RankHosts
    more_parts: Callable[[int], int | None]

    def log_path(self, rank: int) -> Path:
        """Return the path of the file for the output of a rank."""
        return self.log_folder / f"rank-{rank}.log"


class Supervisor:
    """Runs the ranks of one training to its end."""

    def __init__(self, plan: RankPlan) -> None:
        """Make a supervisor that has started nothing yet."""
        self._plan = plan
        self._best_step = 0
        self._without_progress = 0
        self._loss_failed_at: int | None = None
        self._may_grow = True

    def run(self) -> dict[str, Any]:
        """Train to the end.

        Returns:
            The result of rank 0, with ``restarts`` (the failures after which the ranks were started again,
            also by earlier processes) and ``peak_rss_bytes`` of all ranks together.

        Raises:
            ShardmillError: a rank reported an error that a restart does not repair.
            EnvironmentFault: the ranks failed too often without a new step.
            Cancelled, Preempted: stopped on request.
        """
        with (
            tempfile.TemporaryDirectory(prefix="shardmill-ranks-") as folder,
            stop_requests(self._plan.preemption_signals) as stop,
        ):
            while not stop.asked:
                try:
                    slots = self._plan.hosts.choose(lambda: not stop.asked)
                    if stop.asked:
                        break
                    outcome = self._attempt(slots, Path(folder), stop)
                except EnvironmentFault as fault:
                    if not stop.asked:
                        raise
                    events.log(f"{fault.message}, while the run stopped", level="warning")
                    break
                if isinstance(outcome, Finished):
                    restarts = _read_lines(self._plan.log_folder / _RECORD)
                    peak = {"peak_rss_bytes": outcome.peak_rss_bytes}
                    return {**outcome.result, **peak, "restarts": restarts}
                if isinstance(outcome, Failed):
                    self._after(outcome, slots, stop)
                elif isinstance(outcome, Stopped) and not stop.asked:
                    stop.ask(preempted=outcome.preempted)  # a rank was asked, not this process
                elif isinstance(outcome, Regrown) and not outcome.in_time:
                    self._after_slow_growth()
            raise stop.error()

    def _attempt(self, slots: Sequence[Slot], folder: Path, stop: StopRequests) -> Outcome:
        hosts = self._plan.hosts
        with Attempt(self._plan.limits) as attempt:
            try:
                attempt.start(hosts.start(self._plan, slots, folder))
            except RankLost as error:
                message = f"did not start: {error.message}"
                return Failed(0, len(slots), "machine", message, 0, error, last_step=0, in_start=True)
            return attempt.wait(stop, lambda: self._may_grow and hosts.has_more_than(slots))

    def _after_slow_growth(self) -> None:
        """Let no more ranks join while others train: each time would cost the steps since a checkpoint."""
        self._may_grow = False
        events.log(
            f"the ranks did not stop within {self._plan.limits.stop:g} s for more ranks to join "
            "(ranks.stop_timeout_seconds); all ranks start again from the last checkpoint, and from now on "
            "more ranks join only after a failure",
            level="warning",
        )

    def _after(self, failed: Failed, slots: Sequence[Slot], stop: StopRequests) -> None:
        """Record a failure, and return when it is time to start again, or if the run was asked to stop.

        Raises:
            ShardmillError: starting again cannot help.
        """
        if stop.asked:
            events.log(f"{failed}, while the run stopped", level="warning")
            return
        gained = failed.last_step > self._best_step
        self._best_step = max(self._best_step, failed.last_step)
        self._without_progress = 0 if gained else self._without_progress + 1
        _append_line(self._plan.log_folder / _RECORD, failed.to_result())
        self._check_worth(failed)
        if failed.in_start or gained:
            self._plan.hosts.note_attempt(slots[failed.rank] if failed.in_start else None)
        number = self._without_progress
        counts = f" ({number} of {self._plan.max_restarts} without progress)" if number else ""
        events.log(f"{failed}; all ranks start again from the last checkpoint{counts}", level="warning")
        # Go on at once after a first failure, and later after each further one in a row.
        until = time.monotonic() + (min(2.0 ** (number - 1), _LONGEST_PAUSE_SECONDS) if number > 1 else 0.0)
        while time.monotonic() < until and not stop.asked:
            time.sleep(0.1)

    def _check_worth(self, failure: Failed) -> None:
        """Raise if starting again cannot help."""
        if failure.reason == "loss" and failure.error is not None:
            # A first time may be a fault of the hardware; a second time at the same step, the configuration.
            if self._loss_failed_at is not None and failure.step <= self._loss_failed_at:
                raise failure.error
            self._loss_failed_at = failure.step
        elif isinstance(failure.error, UsageError | DataError) or is_defect(failure.error):
            raise failure.error
        elif isinstance(failure.error, OutOfMemory):
            number = self._plan.more_parts(failure.num_ranks)
            if number is None:
                raise failure.error
            self._without_progress = 0  # the next attempt takes smaller parts
            events.log(f"going on with run.accumulate_steps = {number} and the same global batch")
        if self._without_progress > self._plan.max_restarts:
            raise EnvironmentFault(
                f"the ranks failed {counted(self._without_progress, 'time')} in a row without gaining a "
                f"step; the last time {failure}",
                f"see {self._plan.log_folder}; then {GO_ON}",
            ) from failure.error


def _append_line(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
        cut_off = file.read(1) not in (b"", b"\n")  # a process was killed while it wrote
        line = dump_json({"time": round(time.time(), 3), **value}) + "\n"
        file.write(("\n" if cut_off else "").encode() + line.encode())


def _read_lines(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            events.log(f"line {number} of {path} is cut off; that restart is left out", level="warning")
    return found
