"""The worker's side of the guard: no image reaches a decoder past it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from beam_jobs.config import PrepareConfig
from beam_jobs.guard.journal import Slot, Suspect, adopt_journal, one_at_a_time, open_slot
from beam_jobs.guard.memory import is_out_of_memory
from beam_jobs.guard.trial import try_alone
from beam_jobs.guard.verdicts import Verdict, Verdicts, adopt_verdicts, keep_verdict
from beam_jobs.sources.folder import SourceFolder
from infra.codecs import ImageRejected
from infra.errors import EnvironmentFault
from infra.process import die_at_once_with_parent
from infra.storage import Storage

T = TypeVar("T")


def adopt_guard() -> None:
    """Take over what a parent that guards this process left in the environment. Call it first in a main."""
    adopt_journal()
    adopt_verdicts()
    die_at_once_with_parent()


class Attempts:
    """Runs the work on the files of one block, each under the guard."""

    def __init__(
        self, slot: Slot, source: SourceFolder, spool: Storage | None, config: PrepareConfig, known: Verdicts
    ) -> None:
        self._slot = slot
        self._source = source
        self._spool = spool
        self._config = config
        self._known = known

    def run(self, work: Callable[[], T], sha256: bytes, uri: str, size_bytes: int, mtime_ns: int) -> T:
        """The result of ``work`` on a file of this content.

        Raises:
            ImageRejected: there is a verdict on it. EnvironmentFault: memory runs out, through no fault of
            it.
        """
        if (verdict := self._known.get(sha256)) is not None:
            raise _rejected(verdict)
        self._slot.begin(uri, size_bytes, mtime_ns)
        try:
            return work()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        finally:
            self._slot.end()
        self._judge(Suspect(self._source.uri, uri, size_bytes, mtime_ns, 0.0))
        return self._again(work, uri)

    def _judge(self, suspect: Suspect) -> None:
        """Memory ran out while this file was in work: whose doing was it?"""
        with one_at_a_time():  # where memory is short
            verdict = try_alone(suspect, self._config).verdict
        if verdict is not None:
            if self._spool is not None:
                keep_verdict(self._spool, verdict)
            raise _rejected(verdict)

    def _again(self, work: Callable[[], T], uri: str) -> T:
        """Alone the file is harmless, so it was the others'; they may be done by now."""
        try:
            with one_at_a_time():
                return work()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise EnvironmentFault(
                f"memory ran out while {uri} was in work, though that file needs no more than it may",
                "give the job more memory, or lower runner.workers",
            ) from error


@contextlib.contextmanager
def guarded_block(
    source: SourceFolder, spool: Storage | None, config: PrepareConfig, known: Verdicts
) -> Iterator[Attempts]:
    """The guard over one block, for one thread.

    Args:
        source: where the files are.
        spool: where new verdicts go.
        config: how images are stored, and the limits.
        known: the verdicts so far.
    """
    with open_slot(source.uri) as slot:
        yield Attempts(slot, source, spool, config, known)


def _rejected(verdict: Verdict) -> ImageRejected:
    return ImageRejected(verdict.reason, verdict.message)
