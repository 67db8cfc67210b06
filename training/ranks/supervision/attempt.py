"""One attempt to train with several ranks: start them, watch them, and end all as soon as one fails."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from shardmill.infra.errors import (
    Cancelled,
    Diverged,
    DivergedElsewhere,
    RankLost,
    ShardmillError,
    UsageError,
)
from shardmill.infra.processes.process import describe_status
from shardmill.training.ranks.heartbeat import Work
from shardmill.training.ranks.supervision.outcomes import (
    Failed,
    Finished,
    Outcome,
    Reason,
    Regrown,
    Stopped,
    StopRequests,
)
from shardmill.training.ranks.supervision.running_rank import RankState, RunningRank
from shardmill.training.ranks.supervision.silence import Limits, SilenceWatch

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

    def __init__(self, limits: Limits) -> None:
        """Make an attempt without ranks; ``limits`` say when a rank counts as hung."""
        self._limits = limits
        self._ranks: list[RunningRank] = []
        self._silence = SilenceWatch(limits)

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what still runs: SIGTERM, then SIGKILL; at once if the run was cancelled."""
        if not isinstance(error, Cancelled) and not self._have_ended():
            self._signal(signal.SIGTERM)
            self._wait_for_rest(_TERM_SECONDS)
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                rank.close()

    def start(self, ranks: Iterable[RunningRank]) -> None:
        """Take over ranks, each as soon as it has started."""
        for rank in ranks:
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
                return failure
            time.sleep(_LOOK_SECONDS)

    def _have_ended(self) -> bool:
        """Look at all ranks, and return whether all have ended."""
        for rank in self._ranks:
            rank.look()
        return not any(rank.runs for rank in self._ranks)

    def _all_take_steps(self) -> bool:
        """Return whether all ranks take steps, so that they would stop soon.

        Ranks that start would die of the signal. Once a rank has ended, rank 0 exports alone.
        """
        return all(rank.runs and rank.state.beat.work == Work.STEPS for rank in self._ranks)

    def _signal(self, number: signal.Signals) -> None:
        for rank in self._ranks:
            rank.signal(number)

    # -- ends of ranks ---------------------------------------------------------------------------------

    def _outcome(self, stop: StopRequests, growing: bool) -> Outcome | None:
        """Look at all ranks, and return how the attempt ended, once a rank has ended; None: it goes on."""
        self._have_ended()
        if all(rank.runs for rank in self._ranks):
            return None
        first = self._ranks[0].state
        if first.status == 0 and first.result is not None:
            self._wait_for_rest(_LAST_SECONDS)
            peak = sum(int((rank.state.result or {}).get("peak_rss_bytes", 0)) for rank in self._ranks)
            return Finished(first.result, peak)
        self._wait_for_rest(_SETTLE_SECONDS)
        blamed = self._first_to_blame()
        if blamed is not None and isinstance(blamed.state.error, DivergedElsewhere):
            self._wait_for_rest(_CAUSE_SECONDS)
            blamed = self._first_to_blame()
        if blamed is None:
            return None  # ranks other than the first are done; they end earlier
        error = blamed.state.error
        if isinstance(error, Cancelled):
            have_ended = self._wait_for_rest(self._limits.stop, stop)
            failed = [rank for rank in self._ranks if _failed_by_itself(rank.state)]
            if not failed and growing and not stop.asked:
                return Regrown(have_ended)
            if not failed:
                return Stopped(type(error) is not Cancelled)
            blamed = failed[0]
        return self._failed(blamed, *_cause(blamed))

    def _wait_for_rest(self, seconds: float, stop: StopRequests | None = None) -> bool:
        """Wait until all ranks have ended or a second request to stop comes; return whether they have."""
        until = time.monotonic() + seconds
        while not self._have_ended():
            if time.monotonic() > until or (stop is not None and stop.at_once):
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _first_to_blame(self) -> RunningRank | None:
        """Return the rank that failed by itself, not because another was lost; of several the first."""
        first = self._ranks[0]
        ended = [
            rank
            for rank in self._ranks
            if rank.state.status or (rank is first and rank.state.status == 0 and rank.state.result is None)
        ]

        def follows(rank: RunningRank) -> int:
            status, error = rank.state.status or 0, rank.state.error
            if isinstance(error, RankLost | DivergedElsewhere):
                return 2
            # TensorFlow may abort a process after another rank has died. An exception of TensorFlow also says
            # less about the cause than an error that a rank reports.
            return int(error is None and (status == -signal.SIGABRT or status > 0))

        return min(ended, key=lambda rank: (follows(rank), rank.ended_at or 0.0), default=None)

    # -- ranks that hang -------------------------------------------------------------------------------

    def _hung(self) -> Failed | None:
        """Return the failure of a rank that is stopped, or of the one that is behind while all are silent."""
        running = [rank for rank in self._ranks if rank.runs]
        for rank in running:
            if rank.state.stopped_seconds > _STOPPED_SECONDS:
                return self._failed(rank, "stopped", "was stopped (SIGSTOP)")
        reason = self._silence.look({rank.rank: rank.state for rank in running})
        if reason is None:
            return None
        behind = min(running, key=lambda one: one.state.beat.number)  # the others wait for it
        if len({one.state.beat.number for one in running}) == 1 < len(running):
            reason += "; nor did any other rank: one of them hangs in the same step"
        self._signal(signal.SIGQUIT)  # each writes to its log where it is
        return self._failed(behind, "silent", reason)

    def _failed(
        self, rank: RunningRank, reason: Reason, message: str, error: ShardmillError | None = None
    ) -> Failed:
        beat, last_step = rank.state.beat, max(one.state.beat.step for one in self._ranks)
        count, in_start = len(self._ranks), beat.number == 0
        return Failed(rank.rank, count, reason, message, beat.step, error, last_step, in_start)


def _cause(rank: RunningRank) -> tuple[Reason, str, ShardmillError | None]:
    """Return why a rank failed: the kind, in words, and the error that it reported."""
    state = rank.state
    error, status = state.error or _failed_import(state), state.status or 0
    if error is not None:
        return "loss" if isinstance(error, Diverged) else "error", f"reported: {error.message}", error
    if state.lost is not None:
        return "machine", state.lost, None
    if status < 0:
        return "signal", f"was ended by {describe_status(status)}", None
    return "exit", f"ended with status {status}; it last said:\n{state.last_lines}", None


def _failed_by_itself(state: RankState) -> bool:
    """Return whether a rank reported an error that came neither from another rank nor from a request."""
    return state.error is not None and not isinstance(state.error, Cancelled | RankLost | DivergedElsewhere)


def _failed_import(state: RankState) -> UsageError | None:
    """Return the error of a rank whose modules could not be imported, which comes again each time."""
    last = state.last_lines.strip().rpartition("\n")[2]
    if state.beat.number or not last.startswith(_IMPORTING):
        return None
    return UsageError(
        f"it cannot be started: {last}",
        "install what it lacks, in the environment of this command, on every machine with ranks; "
        "the log of the rank has the traceback",
    )
