"""Verdicts: files that must not be decoded again, and why.

A verdict applies to a SHA-256, so copies share it, and only under the limits in force when it was made. It
depends on the file, the libraries and the limits, never on other work of the process, so the row of the file
is the same in every run. Verdicts are stored in the spool as ``verdicts/<sha256>.json``, so that a run that
continues an interrupted one finds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import RunnerConfig
from shardmill.beam_jobs.reasons import HUNG, OUT_OF_MEMORY, VERDICT_REASONS
from shardmill.beam_jobs.tables.ids import contents_of
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

VERDICTS_FOLDER = "verdicts"

_LIMITS = ("image_seconds", "image_memory_bytes")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one file content: how decoding it alone failed.

    Attributes:
        sha256: of the content (shardmill.beam_jobs.tables.ids), 64 hexadecimal digits.
        reason: one of ``VERDICT_REASONS``.
        image_seconds, image_memory_bytes: the limits that were in force.
    """

    sha256: str
    reason: str
    image_seconds: float
    image_memory_bytes: int

    @property
    def message(self) -> str:
        """For a person; the same whenever it happens."""
        if self.reason == HUNG:
            return f"in work for more than {self.image_seconds:g} seconds, without an end"
        if self.reason == OUT_OF_MEMORY:
            return f"needs more than {self.image_memory_bytes // (1 << 20):,} MiB of memory"
        return "an image library crashed on it, and its process with it"

    def holds_under(self, limits: RunnerConfig) -> bool:
        """Tell whether these are the limits that it was found under."""
        return all(getattr(self, limit) == getattr(limits, limit) for limit in _LIMITS)


# Known contents: SHA-256 (32 bytes) -> verdict.
Verdicts = Mapping[bytes, Verdict]
NO_VERDICTS: Verdicts = MappingProxyType({})


def known_verdicts(spool: Storage, limits: RunnerConfig) -> dict[bytes, Verdict]:
    """The verdicts in the spool that hold under these limits, by content: SHA-256 (32 bytes)."""
    entries = spool.list_files(VERDICTS_FOLDER, recursive=False)
    known = [Verdict(**json.loads(spool.read_bytes(entry.path))) for entry in entries]
    return {bytes.fromhex(one.sha256): one for one in known if one.holds_under(limits)}


def keep_verdict(spool: Storage, verdict: Verdict) -> None:
    """Put a verdict into the spool."""
    spool.write_atomic(f"{VERDICTS_FOLDER}/{verdict.sha256}.json", dump_json(asdict(verdict)).encode())


def holds_old_verdicts(facts: pa.Table, verdicts: Verdicts) -> bool:
    """Tell whether a block's table (FACTS_SCHEMA) has a row by a verdict that no longer holds."""
    judged = facts.filter(pc.is_in(facts["reason"], pa.array(VERDICT_REASONS)))
    return any(content not in verdicts for content in contents_of(judged))


def reasons_to_retry(then: Mapping[str, Any], now: RunnerConfig) -> tuple[str, ...]:
    """The reasons of an earlier version's rows that may be over, since an image may take more now.

    Args:
        then: configuration of the version, as its manifest has it.
        now: the present limits.
    """
    runner = then.get("runner", {})
    known = RunnerConfig.model_validate({key: runner[key] for key in runner if key in _LIMITS})
    larger = any(getattr(now, limit) > getattr(known, limit) for limit in _LIMITS)
    return VERDICT_REASONS if larger else ()
