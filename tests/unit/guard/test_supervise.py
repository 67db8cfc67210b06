"""The parent's side: when suspects are tried, when the child starts again, and when it is given up."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from beam_jobs.config import PrepareConfig
from beam_jobs.guard import journal as journal_module
from beam_jobs.guard import start, supervise
from beam_jobs.guard.journal import JOURNAL_FD, Suspect
from beam_jobs.guard.supervise import MAX_BARREN, most_resident_bytes, run_guarded
from beam_jobs.guard.trial import Trial
from beam_jobs.guard.verdicts import VERDICTS_FD, Verdict
from beam_jobs.request import JobRequest
from infra.children import ChildResult
from infra.errors import ChildDied

CONFIG = PrepareConfig.model_validate({"runner": {"image_seconds": 0.2, "image_memory_bytes": 1 << 28}})
REQUEST = JobRequest(source="/photos", dataset="photos", root="datasets", config=CONFIG)
LIMIT = most_resident_bytes(CONFIG.runner)

WELL = ChildResult(0, {"num_records": 1}, None, 100, 0.0)
STOPPED = ChildResult(-9, None, None, 100, 0.0, [], True)


def died(number: int, peak_memory_bytes: int = 100) -> ChildResult:
    return ChildResult(-number, None, None, peak_memory_bytes, 0.0)


class Children:
    """Children that put files in work and then end as told; each takes note of the verdicts it was handed.

    Args:
        lives: (files in work, resident memory that the watch sees or None, how it ends).
    """

    def __init__(self, *lives: tuple[Sequence[str], int | None, ChildResult]) -> None:
        self.lives = list(lives)
        self.handed: list[bytes] = []
        self.given: list[str] = []
        self._env: Mapping[str, str] = {}

    @contextlib.contextmanager
    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int], has_input: bool
    ) -> Iterator[Children]:
        assert has_input
        assert set(pass_fds) == {int(env[JOURNAL_FD]), int(env[VERDICTS_FD])}
        self.handed.append(os.pread(int(env[VERDICTS_FD]), 1 << 16, 0))
        self._env = env
        yield self

    def give(self, text: str) -> None:
        self.given.append(text)

    def wait(self, *, on_event: object, watch: Callable[[int], bool]) -> ChildResult:
        assert len(self.given) == len(self.handed), "each child is told what to do"
        files, resident_bytes, end = self.lives.pop(0)
        slots = journal_module._Slots(int(self._env[JOURNAL_FD]))
        for name in files:
            journal_module.Slot(slots.take(), "/photos").begin(name, 1, 2)
        return STOPPED if resident_bytes is not None and watch(resident_bytes) else end


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[ChildResult, list[str], list[str]]]:
    """Runs children under the guard: (the result, files tried, what was said). Files named bad are guilty."""

    def run_all(children: Children) -> tuple[ChildResult, list[str], list[str]]:
        tried: list[str] = []
        said: list[str] = []

        def try_alone(suspect: Suspect, config: PrepareConfig) -> Trial:
            tried.append(suspect.uri)
            if "bad" not in suspect.uri:
                return Trial(None, "harmless")
            limits = config.runner
            sha256 = f"{len(tried):064x}"
            verdict = Verdict(sha256, "decoder_crashed", limits.image_seconds, limits.image_memory_bytes)
            return Trial(verdict, "SIGSEGV")

        def on_event(event: Mapping[str, Any]) -> None:
            said.append(event["message"])

        monkeypatch.setattr(start, "start_child", children.start)
        monkeypatch.setattr(supervise, "try_alone", try_alone)
        return run_guarded(["job"], REQUEST, on_event), tried, said

    return run_all


@pytest.mark.parametrize(
    "end",
    [
        WELL,
        ChildResult(4, None, {"event": "error", "type": "StorageError"}, 100, 0.0),
        ChildResult(130, None, None, 100, 0.0),
        died(15),
    ],
    ids=["well", "its own error", "cancelled", "terminated"],
)
def test_a_child_that_says_why_it_ends_is_left_alone(end: ChildResult, run: Any) -> None:
    result, tried, said = run(Children((["bad.jpg"], None, end)))
    assert (result, tried, said) == (end, [], [])


def test_a_death_with_nothing_in_work_is_no_images_doing(run: Any) -> None:
    result, tried, _ = run(Children(([], None, died(11))))
    assert (result.returncode, tried) == (-11, [])


def test_the_culprit_of_a_crash_is_handed_to_the_next_child(run: Any) -> None:
    children = Children((["a.jpg", "bad.jpg", "c.jpg"], None, died(11, 700)), ([], None, WELL))
    result, tried, said = run(children)
    assert (result.result, result.peak_memory_bytes) == (WELL.result, 700)
    assert children.given == [REQUEST.model_dump_json()] * 2
    assert tried == ["a.jpg", "bad.jpg"], "one explains it"
    assert children.handed[0] == b"[]"
    assert b"decoder_crashed" in children.handed[1]
    assert any("bad.jpg is quarantined" in line for line in said)


def test_a_culprit_after_others_were_innocent_starts_the_count_anew(run: Any) -> None:
    innocent = (["a.jpg"], None, died(6))
    guilty = (["bad.jpg"], None, died(6))
    lives = [*[innocent] * (MAX_BARREN - 1), guilty, *[innocent] * (MAX_BARREN - 1), ([], None, WELL)]
    result, tried, _ = run(Children(*lives))
    assert result.result == WELL.result
    assert len(tried) == 2 * MAX_BARREN - 1


def test_deaths_that_no_file_explains_end_the_job(run: Any) -> None:
    children = Children(*[(["a.jpg", "b.jpg"], None, died(11))] * 10)
    with pytest.raises(ChildDied, match=r"SIGSEGV, 3 times in a row, the last time with a\.jpg, b\.jpg"):
        run(children)
    assert len(children.handed) == MAX_BARREN


def test_a_kill_from_outside_is_not_repeated(run: Any) -> None:
    result, tried, _ = run(Children((["a.jpg", "b.jpg"], None, died(9))))
    assert (result.returncode, tried) == (-9, ["a.jpg", "b.jpg"])


def test_memory_that_all_need_together_is_granted(run: Any) -> None:
    children = Children(
        (["a.jpg", "b.jpg"], LIMIT + 1, WELL), (["a.jpg"], LIMIT + 1, WELL), (["a.jpg"], 2 * LIMIT + 1, WELL),
        (["a.jpg"], 3 * LIMIT, WELL),
    )  # fmt: skip
    result, tried, _ = run(children)
    assert result.result == WELL.result
    assert tried == ["a.jpg", "b.jpg"], "the second child may have twice as much"
    assert len(children.lives) == 2


def test_memory_without_an_image_in_work_is_no_alarm(run: Any) -> None:
    result, tried, _ = run(Children(([], 10 * LIMIT, WELL)))
    assert (result, tried) == (WELL, [])


def test_only_the_slow_are_suspects(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two files in work, the one that began long ago."""
    begin = journal_module.Slot.begin

    def begin_at(slot: journal_module.Slot, uri: str, size_bytes: int, mtime_ns: int) -> None:
        begin(slot, uri, size_bytes, mtime_ns)
        if uri == "bad.jpg":
            assert slot._slot is not None
            journal_module._SINCE.pack_into(slot._slot, 0, 1e-3)

    monkeypatch.setattr(journal_module.Slot, "begin", begin_at)
    _, tried, said = run(Children((["a.jpg", "bad.jpg"], 0, WELL), ([], None, WELL)))
    assert tried == ["bad.jpg"]
    assert "ended after 0.2 s while bad.jpg was in work" in said[0]
