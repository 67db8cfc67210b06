"""The live artifacts of a job, told of events and shown from a thread of their own."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmill.flows.flow_runs.showing import live
from shardmill.flows.flow_runs.showing.page import Keys
from shardmill.infra.errors import DataError
from shardmill.training.results.run_files.curve import CURVE_FILE
from tests.unit.flows.flow_runs.showing.recorded_page import RecordedPage

JOB = {"event": "job", "job": "train", "shares": {"train": 90, "export": 10}}
EPOCH = {"event": "progress", "stage": "train", "done": 5, "total": 10, "epoch": 1, "epochs": 2, "loss": 0.5}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_UPDATE_SECONDS", 0.02)
    monkeypatch.setattr(live, "_CURVE_SECONDS", 0.02)


def until(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_progress_and_curve_move_while_the_job_runs(tmp_path: Path) -> None:
    page = RecordedPage()
    with live.LivePage(page, Keys("photos"), "train") as shown:
        shown.take({**JOB, "run_dir": str(tmp_path)})
        shown.take(EPOCH)
        until(lambda: (45.0, "45 %, epoch 1 of 2, loss 0.5") in page.progressed)
        assert "photos-training-curve" not in page.shown
        for step in (1, 2):
            with (tmp_path / CURVE_FILE).open("a") as file:
                file.write(f'{{"split": "train", "epoch": 1, "step": {step}, "loss": 0.5}}\n')
            until(lambda at=step: f"| train | 1 | {at} |" in page.shown.get("photos-training-curve", "  ")[1])
        shown.end("test accuracy 0.71")
    assert page.progressed[-1] == (100.0, "test accuracy 0.71")
    percents = [percent for percent, _ in page.progressed]
    assert percents == sorted(percents)


def test_a_job_that_waits_for_another_one_says_so_without_percent() -> None:
    page = RecordedPage()
    with live.LivePage(page, Keys("photos"), "prepare") as shown:
        shown.take({"event": "waiting", "until": "train photos@1"})
        until(lambda: (0.0, "waiting until train photos@1 has ended") in page.progressed)
        shown.take({"event": "waiting", "until": ""})
        until(lambda: page.progressed[-1][1].startswith("0 %"))


def test_a_resumed_curve_begins_at_its_real_beginning(tmp_path: Path) -> None:
    (tmp_path / CURVE_FILE).write_text('{"split": "train", "epoch": 1, "step": 1, "loss": 2.0}\n')
    page = RecordedPage()
    with live.LivePage(page, Keys("photos"), "train") as shown:
        shown.take({**JOB, "run_dir": str(tmp_path)})
        until(lambda: "photos-training-curve" in page.shown)


def test_a_job_that_fails_ends_with_its_error() -> None:
    page = RecordedPage()

    def fails() -> None:
        with live.LivePage(page, Keys("photos"), "train") as shown:
            shown.take(JOB)
            shown.take(EPOCH)
            raise DataError("bad\nmore")

    with pytest.raises(DataError):
        fails()
    assert page.progressed[-1] == (45.0, "train ended: bad")


def test_a_server_that_hangs_does_not_delay_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_JOIN_SECONDS", 0.1)

    began, may_end, waited = threading.Event(), threading.Event(), []

    class Hangs(RecordedPage):
        def progress(self, key: str, percent: float, description: str) -> None:
            began.set()
            waited.append(may_end.wait(60))

    with live.LivePage(Hangs(), Keys("photos"), "train") as shown:
        assert began.wait(60)
        for _ in range(1000):
            shown.take(EPOCH)
    assert waited == [], "the server still hangs"
    may_end.set()


def test_old_news_say_how_old_they_are() -> None:
    now = time.monotonic()
    assert live.with_age("encode: 1 of 2 images", now) == "encode: 1 of 2 images"
    assert re.fullmatch(
        r"encode: 1 of 2 images \(4\d s ago\)", live.with_age("encode: 1 of 2 images", now - 42)
    )
