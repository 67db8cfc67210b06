"""The worker's side: what has a verdict is not decoded, and whose doing it was that memory ran out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import cv2
import pytest

from beam_jobs.config import PrepareConfig
from beam_jobs.guard import attempts as attempts_module
from beam_jobs.guard.attempts import Attempts, guarded_block
from beam_jobs.guard.journal import Suspect
from beam_jobs.guard.memory import is_out_of_memory
from beam_jobs.guard.trial import Trial
from beam_jobs.guard.verdicts import NO_VERDICTS, Verdict, Verdicts, known_verdicts
from beam_jobs.sources.folder import SourceFolder
from infra.codecs import ImageRejected
from infra.errors import EnvironmentFault
from infra.storage import Storage

CONFIG = PrepareConfig()
CONTENT = hashlib.sha256(b"content")
VERDICT = Verdict(
    CONTENT.hexdigest(),
    "decoder_out_of_memory",
    CONFIG.runner.image_seconds,
    CONFIG.runner.image_memory_bytes,
)


class Work:
    """Work that raises what it is told to, one after the other, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def attempt(work: Work, spool: Path | None = None, known: Verdicts = NO_VERDICTS) -> str:
    storage = Storage.at(spool) if spool else None
    with guarded_block(SourceFolder("/photos"), storage, CONFIG, known) as guard:
        assert isinstance(guard, Attempts)
        return guard.run(work, CONTENT.digest(), "a.jpg", 1, 2)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Suspect]:
    """The suspects that were tried; each is found innocent."""
    tried: list[Suspect] = []

    def try_alone(suspect: Suspect, _: PrepareConfig) -> Trial:
        tried.append(suspect)
        return Trial(None, "harmless")

    monkeypatch.setattr(attempts_module, "try_alone", try_alone)
    return tried


def test_no_trial_without_need(trials: list[Suspect]) -> None:
    assert attempt(Work()) == "done"
    with pytest.raises(ImageRejected, match="ends early"):
        attempt(Work(ImageRejected("truncated", "it ends early")))
    assert trials == []


def test_what_has_a_verdict_is_not_decoded(trials: list[Suspect]) -> None:
    work = Work()
    with pytest.raises(ImageRejected) as caught:
        attempt(work, known={CONTENT.digest(): VERDICT})
    assert (caught.value.reason, caught.value.message) == (VERDICT.reason, VERDICT.message)
    assert (work.calls, trials) == (0, [])


def test_a_guilty_file_gets_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "try_alone", lambda *_: Trial(VERDICT, "got no memory"))
    work = Work(MemoryError())
    with pytest.raises(ImageRejected) as caught:
        attempt(work, tmp_path)
    assert caught.value.reason == "decoder_out_of_memory"
    assert work.calls == 1
    assert known_verdicts(Storage.at(tmp_path), CONFIG.runner) == {CONTENT.digest(): VERDICT}


def test_an_innocent_file_is_tried_once_more(trials: list[Suspect]) -> None:
    assert attempt(Work(MemoryError())) == "done"
    assert [(one.source, one.uri, one.size_bytes, one.mtime_ns) for one in trials] == [
        ("/photos", "a.jpg", 1, 2)
    ]


def test_memory_that_stays_short_ends_the_job(trials: list[Suspect]) -> None:
    with pytest.raises(EnvironmentFault, match=r"memory ran out while a\.jpg") as caught:
        attempt(Work(MemoryError(), MemoryError()))
    assert "runner.workers" in str(caught.value.remedy)
    assert len(trials) == 1


def wrapped(cause: Exception) -> Exception:
    error = ImageRejected("corrupt", "not sound")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (wrapped(MemoryError()), True),
        (OSError("out of memory error when reading image file"), True),
        (RuntimeError("Insufficient memory (case 4)"), True),
        (ImageRejected("corrupt", "damaged"), False),
        (wrapped(ValueError("broken")), False),
    ],
)
def test_what_is_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_opencv_without_memory_is_out_of_memory() -> None:
    error = cv2.error("Failed to allocate")
    error.code = cv2.Error.StsNoMem
    assert is_out_of_memory(error)
    error.code = cv2.Error.StsBadArg
    assert not is_out_of_memory(error)
