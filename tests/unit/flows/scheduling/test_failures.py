"""Backing off from a failing source, by a clock of the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
from prefect.client.schemas.actions import VariableCreate

from shardmill.flows.scheduling.failures import Failures, reason_to_postpone, with_failure
from shardmill.flows.scheduling.source_state import files_of, mark_of

NOON = 1_780_000_000.0
ERROR = "3 of 41 inputs were quarantined"


def test_a_source_that_fails_every_minute_is_tried_less_and_less() -> None:
    tries, failures = [], None
    for minute in range(24 * 60):
        now = NOON + 60 * minute
        if failures is not None and reason_to_postpone(failures, now, "same"):
            continue
        tries.append(minute)
        failures = with_failure(failures, ERROR, now, "same")
    assert tries[:9] == [0, 1, 3, 7, 15, 31, 63, 127, 255]
    assert len(tries) == 12, "in a day, where there were 1,440"
    assert all(later - earlier <= 6 * 60 for earlier, later in pairwise(tries))


def test_the_reason_says_how_often_why_and_when_next() -> None:
    reason = reason_to_postpone(Failures(5, ERROR, NOON, "same"), NOON + 1, "same")
    assert reason is not None
    assert "failed 5 times with the same error" in reason
    assert "next try at 2026-05-28 20:42:40 UTC" in reason
    assert reason.endswith(ERROR)


def test_a_change_of_the_source_ends_the_wait() -> None:
    failures = Failures(9, ERROR, NOON, "before")
    assert reason_to_postpone(failures, NOON + 1, "before") is not None
    assert reason_to_postpone(failures, NOON + 1, "after") is None


def test_a_clock_that_was_set_back_postpones_no_longer_than_the_pause() -> None:
    failures = Failures(1, ERROR, NOON, "same")
    assert reason_to_postpone(failures, NOON - 5, "same") is not None, "clocks of machines differ a little"
    assert reason_to_postpone(failures, NOON - 60, "same") is None


def test_a_long_error_fits_into_a_variable_and_is_recognised_again() -> None:
    error = "cannot read " + "a-long-name.jpg " * 1000
    first = with_failure(None, error, NOON, "")
    VariableCreate(name="failures", value=asdict(first))  # Prefect refuses values that are too long
    assert first.error.startswith("cannot read a-long-name.jpg")
    assert with_failure(first, error, NOON, "").count == 2


@pytest.mark.parametrize(
    ("error", "count"),
    [(ERROR, 4), ("4 of 42 inputs were quarantined", 4), ("the disk is full", 1)],
)
def test_another_error_counts_from_one(error: str, count: int) -> None:
    assert with_failure(Failures(3, ERROR, NOON, ""), error, NOON, "").count == count


def _touch(folder: Path) -> None:
    (folder / "a" / "1.jpg").write_bytes(b"12")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "a" / "2.jpg").write_bytes(b"1"),
        lambda folder: (folder / "a" / "1.jpg").unlink(),
        lambda folder: (folder / "a" / "1.jpg").rename(folder / "a" / "3.jpg"),
        _touch,
    ],
)
def test_a_source_changes_with_each_of_its_files(change: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(b"1")
    before = mark_of(files_of(str(tmp_path)))
    assert mark_of(files_of(str(tmp_path))) == before
    change(tmp_path)
    assert mark_of(files_of(str(tmp_path))) != before


@pytest.mark.parametrize("source", ["{}/*.tar", "{}/one.tar", "file://{}/one.tar"])
def test_a_file_or_a_pattern_is_a_source(source: str, tmp_path: Path) -> None:
    (tmp_path / "one.tar").write_bytes(b"1")
    (tmp_path / "notes.txt").write_bytes(b"1")
    found = files_of(source.format(tmp_path))
    assert found is not None
    assert list(found) == ["one.tar"]


@pytest.mark.parametrize("source", ["https://example.org/photos", "nonsense://x"])
def test_a_source_that_cannot_be_listed_has_no_state(source: str) -> None:
    assert files_of(source) is None
    assert mark_of(None) == ""


def test_a_folder_that_appears_is_a_change(tmp_path: Path) -> None:
    gone = mark_of(files_of(str(tmp_path / "photos")))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_bytes(b"1")
    assert mark_of(files_of(str(tmp_path / "photos"))) != gone
