"""Verdicts: which contents no decoder gets to see again, and why.

A verdict is of a content (its SHA-256), so copies of a file share it, and of the limits that were in force:
under others the file is tried again. Verdicts lie in the spool, ``verdicts/<sha256>.json``, for a run that
goes on where another was interrupted. What the parent finds, it hands to the next child, which puts it there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from beam_jobs.config import MIB, RunnerConfig
from beam_jobs.guard.journal import anonymous_file

if TYPE_CHECKING:  # the parent of a job loads this, and should not load Arrow for it
    import pyarrow as pa

    from infra.storage import Storage

VERDICTS_FOLDER = "verdicts"
VERDICTS_FD = "SHARDMILL_VERDICTS_FD"

Reason = Literal["decoder_crashed", "decoder_hung", "decoder_out_of_memory"]

CRASHED: Final = "decoder_crashed"
HUNG: Final = "decoder_hung"
OUT_OF_MEMORY: Final = "decoder_out_of_memory"
VERDICT_REASONS: tuple[Reason, ...] = (CRASHED, HUNG, OUT_OF_MEMORY)

_LIMITS = ("image_seconds", "image_memory_bytes")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a content did to a process of its own.

    Attributes:
        sha256: of the content, 64 hexadecimal digits.
        reason: one of VERDICT_REASONS.
        image_seconds, image_memory_bytes: the limits that were in force.
    """

    sha256: str
    reason: Reason
    image_seconds: float
    image_memory_bytes: int

    @property
    def message(self) -> str:
        """For a person; the same whenever it happens."""
        if self.reason == HUNG:
            return f"in work for more than {self.image_seconds:g} seconds, without an end"
        if self.reason == OUT_OF_MEMORY:
            return f"needs more than {self.image_memory_bytes // MIB:,} MiB of memory"
        return "an image library crashed on it, and its process with it"

    def holds_under(self, limits: RunnerConfig) -> bool:
        """Whether these are the limits that it was found under."""
        return all(getattr(self, limit) == getattr(limits, limit) for limit in _LIMITS)


# Known contents: SHA-256 (32 bytes) -> verdict.
Verdicts = Mapping[bytes, Verdict]
NO_VERDICTS: Verdicts = MappingProxyType({})

_handed: list[Verdict] = []


@contextlib.contextmanager
def handed_over(verdicts: Iterable[Verdict]) -> Iterator[tuple[int, dict[str, str]]]:
    """(descriptor, variables) by which a child finds the verdicts."""
    fd = anonymous_file("shardmill-verdicts")
    try:
        with os.fdopen(os.dup(fd), "w") as stream:
            json.dump([asdict(verdict) for verdict in verdicts], stream)
        yield fd, {VERDICTS_FD: str(fd)}
    finally:
        os.close(fd)


def adopt_verdicts() -> None:
    """Take over the verdicts that a parent left in the environment."""
    descriptor = os.environ.pop(VERDICTS_FD, None)
    if descriptor is None:
        return
    with os.fdopen(int(descriptor)) as stream:
        stream.seek(0)
        _handed[:] = [Verdict(**values) for values in json.load(stream)]


def known_verdicts(spool: Storage | None, limits: RunnerConfig) -> dict[bytes, Verdict]:
    """The verdicts that hold under these limits: those of the spool, and those that the parent handed over.

    Puts the latter into the spool.
    """
    known = {verdict.sha256: verdict for verdict in _handed}
    if spool is not None:
        for verdict in known.values():
            keep_verdict(spool, verdict)
        for entry in spool.list_files(VERDICTS_FOLDER, recursive=False):
            verdict = Verdict(**json.loads(spool.read_bytes(entry.path)))
            known.setdefault(verdict.sha256, verdict)
    return {bytes.fromhex(sha256): one for sha256, one in known.items() if one.holds_under(limits)}


def keep_verdict(spool: Storage, verdict: Verdict) -> None:
    """Put a verdict into the spool."""
    spool.write_atomic(f"{VERDICTS_FOLDER}/{verdict.sha256}.json", json.dumps(asdict(verdict)).encode())


def holds_old_verdicts(facts: pa.Table, verdicts: Verdicts) -> bool:
    """Whether a block's table (FACTS_SCHEMA) has a row by a verdict that no longer holds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    judged = facts.filter(pc.is_in(facts["reason"], pa.array(VERDICT_REASONS)))
    return any(sha256 not in verdicts for sha256 in judged["sha256"].to_pylist())


def reasons_to_retry(then: Mapping[str, Any], now: RunnerConfig) -> tuple[Reason, ...]:
    """The reasons of an earlier version's rows that may be over, since an image may take more now.

    Args:
        then: configuration of the version, as its manifest has it.
        now: the present limits.
    """
    runner = then.get("runner", {})
    known = RunnerConfig.model_validate({key: runner[key] for key in runner if key in _LIMITS})
    larger = any(getattr(now, limit) > getattr(known, limit) for limit in _LIMITS)
    return VERDICT_REASONS if larger else ()
