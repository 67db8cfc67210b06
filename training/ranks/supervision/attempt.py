"""One attempt to train with several ranks: start them, watch them, and end all as soon as one fails."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from shardmill.infra.errors import Cancelled, Diverged, DivergedElsewhere, RankLost, UsageError
from shardmill.infra.processes.process import describe_status
from shardmill.infra.progress import Event
from shardmill.training.ranks.heartbeat import Work
from shardmill.training.ranks.supervision.hosts import OnEvent, RunningRank
from shardmill.training.ranks.supervision.outcomes import (
    Failed,
    Finished,
    Outcome,
    RankFailure,
    Reason,
    Regrown,
    Stopped,
)
from shardmill.training.ranks.supervision.silence import Limits, Sign, SilenceWatch
from shardmill.training.ranks.supervision.stop_requests import StopRequests

_LOOK_SECONDS = 0.05
# When a rank dies, its peers fail too. Wait so long for them, to tell the first failure from the others.
_SETTLE_SECONDS = 0.5
# A rank that says that the cause is in another rank: that one reports it soon, on a busy machine less soon.
_CAUSE_SECONDS = 5.0
# SIGTERM lets a rank finish a file; one that waits for a dead rank cannot react, so SIGKILL follows soon.
_TERM_SECONDS = 1.0
_STOPPED_SECONDS = 3.0
_LAST_SECONDS = 30.0
# The last line of a process of Python that could not import its modules.
_IMPORTING = ("ImportError: ", "ModuleNotFoundError: ", "SyntaxError: ")


class Attempt:
    """The ranks of one attempt. A context manager: no rank outlives it."""

    def __init__(self, limits: Limits, on_event: Callable[[Event], None]) -> None:
        """Make an attempt without ranks.

        Args:
            limits: when a rank counts as hung.
            on_event: is called with the events of rank 0, and with speeds and warnings of the other ranks.
        """
        self._limits = limits
        self._on_event = on_event
        self._ranks: list[RunningRank] = []
        self._silence = SilenceWatch(limits)

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all(0.0 if isinstance(error, Cancelled) else _TERM_SECONDS)

    def start(self, start: Callable[[OnEvent], Iterable[RunningRank]]) -> None:
        """Start all ranks.

        Args:
            start: starts the ranks and yields each; its argument is the function that receives their events.
        """
        for rank in start(self._relay):
            self._ranks.append(rank)

    def wait(self, stop: StopRequests, may_grow: Callable[[], bool]) -> Outcome:
        """Watch the ranks to the end of the attempt.

        Args:
            stop: requests to stop from outside.
            may_grow: returns whether more devices are available than in use.

        Returns:
            The outcome. After a failure, some ranks may still run; the caller ends them by leaving the
            context. After any other outcome, all ranks have ended or have run out of time to stop.
        """
        asked_at: float | None = None
        growing = False
        while True:
            if (outcome := self._outcome(stop, growing)) is not None:
                return outcome
            if growing and stop.asked:  # the ranks stop already; they get their time anew
                growing, asked_at = False, time.monotonic()
            elif asked_at is None and (stop.asked or (self._all_take_steps() and may_grow())):
                growing, asked_at = not stop.asked, time.monotonic()
                self._signal(signal.SIGTERM if growing or stop.preempted else signal.SIGINT)
            if stop.at_once or (asked_at is not None and time.monotonic() - asked_at > self._limits.stop):
                return Regrown(in_time=False) if growing else Stopped(stop.preempted)
            if (failure := self._hung()) is not None:
                return self._failed(failure)
            time.sleep(_LOOK_SECONDS)

    def _all_take_steps(self) -> bool:
        """Return whether all ranks take steps, so that they would stop soon.

        Ranks that start would die of the signal. Once a rank has ended, rank 0 exports alone.
        """
        return all(rank.poll() is None and rank.beat.work == Work.STEPS for rank in self._ranks)

    def _relay(self, rank: int, event: Event) -> None:
        kind = event.get("event")
        if kind in ("result", "error"):
            return
        if rank == 0 or kind == "rank":
            self._on_event(event)
        elif kind == "log" and event.get("level") != "info":
            self._on_event({**event, "message": f"rank {rank}: {event.get('message')}"})

    # -- ends of ranks ---------------------------------------------------------------------------------

    def _outcome(self, stop: StopRequests, growing: bool) -> Outcome | None:
        """Return how the attempt ended, once a rank has ended; None: it goes on."""
        if all(rank.poll() is None for rank in self._ranks):
            return None
        if self._ranks[0].poll() == 0 and self._ranks[0].result is not None:
            self._wait_for_rest(_LAST_SECONDS)
            peak = sum(int((rank.result or {}).get("peak_rss_bytes", 0)) for rank in self._ranks)
            return Finished(self._ranks[0].result, peak)
        self._wait_for_rest(_SETTLE_SECONDS)
        first = self._first_to_blame()
        if first is not None and isinstance(first.error, DivergedElsewhere):
            self._wait_for_rest(_CAUSE_SECONDS)
            first = self._first_to_blame()
        if first is None:
            return None  # ranks other than the first are done; they end earlier
        if isinstance(first.error, Cancelled):
            have_ended = self._wait_for_rest(self._limits.stop, stop)
            if growing and not stop.asked:
                return Regrown(have_ended)
            return Stopped(type(first.error) is not Cancelled)
        return self._failed(self._described(first))

    def _wait_for_rest(self, seconds: float, stop: StopRequests | None = None) -> bool:
        """Wait until all ranks have ended or a second request to stop comes; return whether they have."""
        until = time.monotonic() + seconds
        while any(rank.poll() is None for rank in self._ranks):
            if time.monotonic() > until or (stop is not None and stop.at_once):
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _first_to_blame(self) -> RunningRank | None:
        """Return the rank that failed by itself, not because another was lost; of several the first."""
        ended = [rank for rank in self._ranks if rank.poll() not in (None, 0)]
        if self._ranks[0].poll() == 0 and self._ranks[0].result is None:
            ended.append(self._ranks[0])

        def follows(rank: RunningRank) -> int:
            if isinstance(rank.error, RankLost | DivergedElsewhere):
                return 2
            # TensorFlow may abort a process after another rank has died. An exception of TensorFlow also says
            # less about the cause than an error that a rank reports.
            return int(rank.error is None and (rank.poll() == -signal.SIGABRT or (rank.poll() or 0) > 0))

        return min(ended, key=lambda rank: (follows(rank), rank.ended_at or 0.0), default=None)

    def _described(self, rank: RunningRank) -> RankFailure:
        status, error = rank.poll() or 0, rank.error or _failed_import(rank)
        reason: Reason
        if isinstance(error, Diverged):
            reason, message = "loss", f"reported: {error.message}"
        elif error is not None:
            reason, message = "error", f"reported: {error.message}"
        elif rank.lost is not None:
            reason, message = "machine", rank.lost
        elif status < 0:
            reason, message = "signal", f"was ended by {describe_status(status)}"
        else:
            reason, message = "exit", f"ended with status {status}; it last said:\n{rank.last_lines}"
        return RankFailure(rank.rank, len(self._ranks), reason, message, rank.beat.step, error)

    # -- ranks that hang -------------------------------------------------------------------------------

    def _hung(self) -> RankFailure | None:
        """Return the failure of a rank that is stopped, or of the one that is behind while all are silent."""
        running = [rank for rank in self._ranks if rank.poll() is None]
        for rank in running:
            if rank.stopped_seconds() > _STOPPED_SECONDS:
                return self._hang(rank, "stopped", "was stopped (SIGSTOP)")
        reason = self._silence.look(
            {rank.rank: Sign(rank.beat, rank.silent_seconds(), rank.idle_seconds()) for rank in running}
        )
        if reason is None:
            return None
        behind = min(running, key=lambda one: one.beat.number)  # the others wait for it
        if len({one.beat.number for one in running}) == 1 < len(running):
            reason += "; nor did any other rank: one of them hangs in the same step"
        self._signal(signal.SIGQUIT)  # each writes to its log where it is
        return self._hang(behind, "silent", reason)

    def _hang(self, rank: RunningRank, reason: Reason, message: str) -> RankFailure:
        return RankFailure(rank.rank, len(self._ranks), reason, message, rank.beat.step)

    # -- ending ----------------------------------------------------------------------------------------

    def _failed(self, failure: RankFailure) -> Failed:
        in_start = any(rank.beat.number == 0 for rank in self._ranks if rank.rank == failure.rank)
        return Failed(failure, max(rank.beat.step for rank in self._ranks), in_start)

    def _signal(self, number: signal.Signals) -> None:
        for rank in self._ranks:
            rank.signal(number)

    def _end_all(self, grace_seconds: float) -> None:
        """End what still runs: SIGTERM, then SIGKILL."""
        if any(rank.poll() is None for rank in self._ranks) and grace_seconds:
            self._signal(signal.SIGTERM)
            self._wait_for_rest(grace_seconds)
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                rank.close()


def _failed_import(rank: RunningRank) -> UsageError | None:
    """Return the error of a rank whose modules could not be imported, which comes again each time."""
    last = rank.last_lines.strip().rpartition("\n")[2]
    if rank.beat.number or not last.startswith(_IMPORTING):
        return None
    return UsageError(
        f"it cannot be started: {last}",
        "install what it lacks, in the environment of this command, on every machine with ranks; "
        "the log of the rank has the traceback",
    )
