"""Trials: a suspect decoded alone in a disposable process (beam_jobs.guard.alone), and what that proves.

what the process did                                      verdict
gave its result in time                                   none: the file is innocent, whether image or not
was still at it after runner.image_seconds                decoder_hung
got no more memory than runner.image_memory_bytes         decoder_out_of_memory
ended without a result                                    decoder_crashed, but for two cases:
    ... but gave one with twice the memory                decoder_out_of_memory: a library took it badly
    ... by SIGKILL, twice, which we did not send          decoder_out_of_memory: the system's memory ran out
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beam_jobs.config import MIB, FilterConfig, ImageConfig, PrepareConfig
from beam_jobs.guard.journal import Journal, Suspect
from beam_jobs.guard.verdicts import CRASHED, HUNG, OUT_OF_MEMORY, Reason, Verdict
from infra.children import ChildResult, run_child
from infra.settings import Settings

# Resident memory of a process before it decodes its first image, at the most (bytes).
OWN_BYTES = 512 * MIB
_START_SECONDS = 120.0  # for libraries to load and the file to be read


class TrialRequest(Settings):
    """The file, what is to be done with it, and the memory it may take (bytes)."""

    source: str
    uri: str
    size_bytes: int
    mtime_ns: int
    image: ImageConfig
    filter: FilterConfig
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Trial:
    """How a trial ended.

    Attributes:
        verdict: None where the file is innocent, or nothing could be found out.
        how: what was seen, for the log.
    """

    verdict: Verdict | None
    how: str


def try_alone(suspect: Suspect, config: PrepareConfig) -> Trial:
    """Decode a suspect alone, and judge it."""
    limits = config.runner
    first = _run(suspect, config, limits.image_memory_bytes)
    reason, how = first.reason, first.how
    if first.killed or first.reason == CRASHED:
        second = _run(suspect, config, limits.image_memory_bytes * (1 if first.killed else 2))
        if first.killed:
            reason = OUT_OF_MEMORY if second.killed else second.reason
        elif second.reason != CRASHED and (second.reason or second.memory_bytes > limits.image_memory_bytes):
            reason = OUT_OF_MEMORY
    sha256 = first.sha256
    if reason is None or sha256 is None:
        return Trial(None, how)
    return Trial(Verdict(sha256, reason, limits.image_seconds, limits.image_memory_bytes), how)


@dataclass(frozen=True, slots=True)
class _Run:
    """What one disposable process did.

    Attributes:
        reason: what that proves; None where it proves nothing against the file.
        how: in words.
        killed: ended by a SIGKILL that was not ours.
        sha256: of the file; None where it was not read.
        memory_bytes: what decoding took, where it came to an end.
    """

    reason: Reason | None
    how: str
    killed: bool
    sha256: str | None
    memory_bytes: int


def _run(suspect: Suspect, config: PrepareConfig, memory_bytes: int) -> _Run:
    request = TrialRequest(
        source=suspect.source,
        uri=suspect.uri,
        size_bytes=suspect.size_bytes,
        mtime_ns=suspect.mtime_ns,
        image=config.image,
        filter=config.filter,
        memory_bytes=memory_bytes,
    )
    argv = [sys.executable, "-m", "beam_jobs.guard.alone", "--request", request.model_dump_json()]
    read: list[str] = []

    def on_event(event: Mapping[str, Any]) -> None:
        if event.get("event") == "read":
            read.append(event["sha256"])

    with Journal() as journal:
        watch = _Watch(journal, config.runner.image_seconds, OWN_BYTES + memory_bytes)
        child = run_child(argv, on_event=on_event, env=journal.env, pass_fds=(journal.fd,), watch=watch)
        was_decoding = bool(journal.in_work())
    reason, how = _judge(child, watch, was_decoding)
    killed = child.returncode == -signal.SIGKILL and not child.was_stopped
    took = int(child.result["memory_bytes"]) if child.result else 0
    return _Run(reason, how, killed, read[0] if read else None, took)


class _Watch:
    """Ends a trial that takes too long or too much."""

    def __init__(self, journal: Journal, seconds: float, resident_bytes: int) -> None:
        self.reason: Reason | None = None
        self._journal, self._seconds, self._resident_bytes = journal, seconds, resident_bytes
        self._give_up = time.monotonic() + _START_SECONDS

    def __call__(self, resident_bytes: int) -> bool:
        now = time.monotonic()
        decoding = self._journal.in_work()
        if not decoding:
            return now > self._give_up
        if now - decoding[0].since > self._seconds:
            self.reason = HUNG
        elif resident_bytes > self._resident_bytes:
            self.reason = OUT_OF_MEMORY
        return self.reason is not None


def _judge(child: ChildResult, watch: _Watch, was_decoding: bool) -> tuple[Reason | None, str]:
    if child.was_stopped:
        if watch.reason is None:
            return None, f"its trial did not begin within {_START_SECONDS:g} s"
        return watch.reason, "too slow" if watch.reason == HUNG else "too large in memory"
    if child.result is not None:
        return (OUT_OF_MEMORY, "got no memory") if child.result["out_of_memory"] else (None, "harmless")
    if not was_decoding:
        return None, "its trial ended before it began: " + " ".join(child.last_lines[-3:])
    return CRASHED, how_it_ended(child.returncode)


def how_it_ended(returncode: int) -> str:
    """SIGSEGV; status 1"""
    return signal.Signals(-returncode).name if returncode < 0 else f"status {returncode}"
