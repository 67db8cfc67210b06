"""The side of the parent: run the job, watch what is in work, try the suspects, and start it again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from signal import SIGINT, SIGKILL, SIGTERM

from beam_jobs.config import MIB, RunnerConfig
from beam_jobs.guard.journal import Journal, Suspect
from beam_jobs.guard.start import StartedJob, start_job
from beam_jobs.guard.trial import OWN_BYTES, how_it_ended, try_alone
from beam_jobs.guard.verdicts import HUNG, Verdict, handed_over
from beam_jobs.request import JobRequest
from beam_jobs.runners import pool_size
from infra.children import ChildResult
from infra.errors import Cancelled, ChildDied
from infra.progress import Listener

# So many ends in a row for which no file is to blame, and we give up.
MAX_BARREN = 3

# What a process of the job's pool has resident by itself, shared or not, at the most (bytes).
_POOLED_BYTES = 160 * MIB

_STOPPED = (Cancelled.exit_code, -SIGINT, -SIGTERM)
_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class _Alarm:
    """Why the files in work are suspects.

    Attributes:
        kind: "died", "slow" or "memory".
        how: in words.
    """

    kind: str
    how: str


def run_guarded(
    argv: Sequence[str], request: JobRequest, on_event: Listener, started: StartedJob | None = None
) -> ChildResult:
    """Run a job that decodes images to its end, however often a decoder brings it down.

    Args:
        argv: a command that adopts the journal and the verdicts, reads the request, and goes on where it was.
        request: what it is to do.
        on_event: gets the job's events, and what the guard has to say.
        started: the same command, if it runs already.

    Returns:
        How the last child ended, with the largest memory of all; where images are to blame, not by them.

    Raises:
        ChildDied: it died again and again, and no file does so alone.
    """
    return _Supervisor(argv, request, on_event).run(started)


def most_resident_bytes(runner: RunnerConfig) -> int:
    """How much memory all processes of a job may have resident before its images are suspects (bytes)."""
    return OWN_BYTES + pool_size(runner) * _POOLED_BYTES + runner.image_memory_bytes


class _Supervisor:
    def __init__(self, argv: Sequence[str], request: JobRequest, on_event: Listener) -> None:
        self._argv, self._request, self._on_event = argv, request, on_event
        self._config = request.config
        self._verdicts: dict[str, Verdict] = {}
        self._resident_bytes = most_resident_bytes(self._config.runner)

    def run(self, started: StartedJob | None) -> ChildResult:
        peak_memory_bytes, barren = 0, 0
        while True:
            with self._start() if started is None else contextlib.nullcontext(started) as job:
                child, alarm, suspects = self._wait_for(job)
            started = None
            peak_memory_bytes = max(peak_memory_bytes, child.peak_memory_bytes)
            if alarm is None or not suspects:
                return replace(child, peak_memory_bytes=peak_memory_bytes)
            if self._find_culprits(suspects, alarm):
                barren = 0
                continue
            if child.returncode == -SIGKILL and alarm.kind == "died":
                # Someone's wish, or the system's need.
                return replace(child, peak_memory_bytes=peak_memory_bytes)
            if alarm.kind == "memory":
                self._resident_bytes *= 2  # all of them together, then, and each within what it may take
            else:
                barren += 1
                if barren == MAX_BARREN:
                    raise self._giving_up(suspects, alarm)
            self._say("each of them alone is harmless; the job goes on from its finished blocks")

    @contextlib.contextmanager
    def _start(self) -> Iterator[StartedJob]:
        with (
            handed_over(self._verdicts.values()) as (verdicts_fd, variables),
            start_job(self._argv, variables, (verdicts_fd,)) as job,
        ):
            yield job

    def _wait_for(self, job: StartedJob) -> tuple[ChildResult, _Alarm | None, list[Suspect]]:
        """(how the child ended, why that is alarming, the files to try)."""
        watch = _Watch(job.journal, self._config.runner.image_seconds, self._resident_bytes)
        job.child.give(self._request.model_dump_json())
        child = job.child.wait(on_event=self._on_event, watch=watch)
        suspects = job.journal.in_work()
        if child.was_stopped:
            return child, watch.alarm, watch.suspects
        silent = child.result is None and child.error is None and child.returncode not in _STOPPED
        alarm = _Alarm("died", f"ended by {how_it_ended(child.returncode)}") if silent else None
        return child, alarm, suspects

    def _find_culprits(self, suspects: Sequence[Suspect], alarm: _Alarm) -> bool:
        """Try the suspects alone; whether any has a verdict now."""
        self._say(f"the job was {alarm.how} while {_names(suspects)} {_was(suspects)} in work; trying alone")
        found = False
        for suspect in suspects:
            trial = try_alone(suspect, self._config)
            if trial.verdict is not None:
                found = True
                self._verdicts[trial.verdict.sha256] = trial.verdict
                self._say(f"{suspect.uri} is quarantined: {trial.verdict.message} ({trial.how})")
                if alarm.kind == "died" and trial.verdict.reason != HUNG:
                    break  # one explains it; were there another, it would show itself
        return found

    def _giving_up(self, suspects: Sequence[Suspect], alarm: _Alarm) -> ChildDied:
        again = f"the job was {alarm.how}, {MAX_BARREN} times in a row, the last time with {_names(suspects)}"
        remedy = (
            "raise runner.image_seconds, or lower runner.workers"
            if alarm.kind == "slow"
            else "run again with runner.workers=1; a library may not stand company, or memory is bad"
        )
        return ChildDied(f"{again} in work; no file does that alone", remedy)

    def _say(self, message: str) -> None:
        self._on_event({"event": "log", "level": "warning", "message": message, "time": time.time()})


class _Watch:
    """Sees from the journal and from memory that a child had better be ended."""

    def __init__(self, journal: Journal, seconds: float, resident_bytes: int) -> None:
        self.alarm: _Alarm | None = None
        self.suspects: list[Suspect] = []
        self._journal, self._seconds, self._resident_bytes = journal, seconds, resident_bytes

    def __call__(self, resident_bytes: int) -> bool:
        in_work = self._journal.in_work()
        now = time.monotonic()
        slow = [suspect for suspect in in_work if now - suspect.since > self._seconds]
        if slow:
            self.alarm, self.suspects = _Alarm("slow", f"ended after {self._seconds:g} s"), slow
        elif in_work and resident_bytes > self._resident_bytes:
            how = f"ended at {resident_bytes >> 20:,} MiB of memory"
            self.alarm, self.suspects = _Alarm("memory", how), in_work
        return self.alarm is not None


def _names(suspects: Sequence[Suspect]) -> str:
    names = ", ".join(suspect.uri for suspect in suspects[:_NAMES_SHOWN])
    return names if len(suspects) <= _NAMES_SHOWN else f"{names} and {len(suspects) - _NAMES_SHOWN} more"


def _was(suspects: Sequence[Suspect]) -> str:
    return "was" if len(suspects) == 1 else "were"
