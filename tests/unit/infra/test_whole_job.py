"""One progress over a whole job, from the events of its stages and epochs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.whole_job import StageTimes, TerminalProgress, WholeJob


def test_a_stage_that_is_entered_again_adds_up_and_a_failed_one_does_not_count() -> None:
    times = StageTimes()
    for _ in range(2):
        with times.measure("encode"):
            times.add_cpu_seconds("encode", 1.5)
    with pytest.raises(ValueError, match="no"), times.measure("plan"):
        raise ValueError("no")
    assert times.seconds.keys() == times.cpu_seconds.keys() == {"encode"}
    assert times.cpu_seconds["encode"] >= 3.0
    assert times.since_start() >= times.seconds["encode"] - 0.001


SHARES = {"list": 10, "encode": 60, "publish": 30}
TRAIN = {"train": 90, "evaluate test": 10}


def begin(shares: dict[str, int], name: str = "prepare") -> dict[str, Any]:
    return {"event": "job", "job": name, "shares": shares}


def at(stage: str, done: int, total: int | None, **more: Any) -> dict[str, Any]:
    return {"event": "progress", "stage": stage, "done": done, "total": total, "unit": "images", **more}


def taken(*events: dict[str, Any]) -> WholeJob:
    job = WholeJob()
    for event in events:
        job.take(event)
    return job


@pytest.mark.parametrize(
    ("events", "share"),
    [
        ([], 0.0),
        ([at("list", 3, None)], 0.0),
        ([at("list", 10, 10)], 0.1),
        ([at("encode", 50, 100)], 0.4),
        ([at("encode", 50, 100), at("validate", 1, 100)], 0.4),
        ([at("encode", 50, 100), at("encode", 0, 100)], 0.4),
        ([at("publish", 1, 1)], 1.0),
        ([at("encode", 300, 100)], 0.7),
    ],
)
def test_the_share_of_a_job(events: list[dict[str, Any]], share: float) -> None:
    assert taken(begin(SHARES), *events).share == pytest.approx(share)


EVENTS = st.builds(
    at,
    st.sampled_from([*SHARES, "validate"]),
    st.integers(0, 200),
    st.one_of(st.none(), st.integers(0, 100)),
)


@given(st.lists(EVENTS, max_size=20))
def test_the_share_never_falls_and_the_text_never_fails(events: list[dict[str, Any]]) -> None:
    job, before = taken(begin(SHARES)), 0.0
    for event in events:
        job.take(event)
        assert before <= job.share <= 1.0
        assert job.text()
        before = job.share


def test_a_second_job_begins_at_nothing() -> None:
    job = taken(begin(SHARES), at("publish", 1, 1), begin(TRAIN, "train"))
    assert (job.name, job.share) == ("train", 0.0)


def test_without_a_job_each_stage_is_the_whole() -> None:
    assert taken(at("verify", 5, 10)).share == 0.5


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (
            [at("encode", 1200, 3600, per_second=100.0)],
            "encode: 1,200 of 3,600 images, 100 images/s, about 42 s left",
        ),
        ([at("encode", 3600, 3600, per_second=100.0)], "encode: 3,600 of 3,600 images, 100 images/s"),
        ([at("list", 5, None)], "list: 5 images"),
        ([at("publish", 1, 1, per_second=0.3)], "publish: 1 of 1 images"),
    ],
)
def test_stages_in_words(events: list[dict[str, Any]], text: str) -> None:
    assert taken(begin(SHARES), *events).text() == text


EPOCH = at("train", 500, 2000, per_second=10.0, epoch=2, epochs=8, loss=0.6931471805, accuracy=0.5)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([EPOCH], "epoch 2 of 8, loss 0.6931, accuracy 0.5, 10 images/s, about 3 min left"),
        (
            [EPOCH | {"images_per_second": 30.0}],
            "epoch 2 of 8, loss 0.6931, accuracy 0.5, 30 images/s, about 3 min left",
        ),
        (
            [EPOCH, at("validate", 40, 400)],
            "epoch 2 of 8, validate: 40 of 400 images, loss 0.6931, accuracy 0.5",
        ),
        ([EPOCH, at("evaluate test", 40, 400)], "evaluate test: 40 of 400 images"),
    ],
)
def test_epochs_in_words(events: list[dict[str, Any]], text: str) -> None:
    assert taken(begin(TRAIN), *events).text() == text


def test_a_job_says_for_which_other_it_waits() -> None:
    job = taken(begin(SHARES), at("list", 10, 10), {"event": "waiting", "until": "train photos@1"})
    assert job.text() == "waiting until train photos@1 has ended"
    job.take({"event": "waiting", "until": ""})
    assert job.text() == "list: 10 of 10 images"


def test_a_resumed_training_begins_where_it_stopped() -> None:
    stage = {"event": "stage", "stage": "train", "done": 1000, "total": 2000, "unit": "images"}
    assert taken(begin(TRAIN), stage).share == pytest.approx(0.45)


def test_the_terminal_shows_one_progress_with_loss_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress(live=False) as show:
        show(begin(TRAIN, "train"))
        show({**EPOCH, "event": "stage"})
        show(at("validate", 0, 400) | {"event": "stage"})  # short, and in every epoch
        show(
            {"event": "metrics", "split": "validation", "epoch": 2, "step": 9, "loss": 0.6, "accuracy": 0.71}
        )
        show({"event": "lost", "reasons": {"empty": 7}, "inputs": [LOST] * 6})
    assert capsys.readouterr().err.splitlines() == [
        " 22% epoch 2 of 8, loss 0.6931, accuracy 0.5, 10 images/s, about 3 min left",
        "epoch 2: validation loss 0.6, accuracy 0.71",
        *["empty: a\\x1b[1m.jpg (it has no content)"] * 5,
        "and 2 more",
    ]


LOST = {"uri": "a\x1b[1m.jpg", "reason": "empty", "message": "it has no content"}


def test_a_terminal_has_one_bar_for_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress(live=True) as show:
        show(begin(TRAIN, "train"))
        show(EPOCH)
        show(at("evaluate test", 400, 400))
        show({"event": "result", "result": {}})
    shown = capsys.readouterr().err
    assert "100%" in shown
    assert shown.count("train ") == 1
