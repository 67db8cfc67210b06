"""What a rank tells its parent by its heartbeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.infra import progress as events
from shardmill.training.ranks.heartbeat import Beat, Heart, Work, prepare, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    prepare(tmp_path / "heartbeat")
    return tmp_path / "heartbeat"


def test_a_stage_begins_with_steps_that_may_compile(path: Path) -> None:
    assert read(path) == Beat()
    heart = Heart(path)
    works = []
    for _ in range(2):
        for _ in range(6):
            heart.beat()
            works.append(read(path).work)
        heart.begin_stage()
    assert works == 2 * [Work.START, Work.START, Work.START, Work.STEPS, Work.STEPS, Work.STEPS]
    assert read(path).number == 12


def test_work_of_a_kind_ends_with_its_block(path: Path) -> None:
    heart = Heart(path)
    for _ in range(5):
        heart.beat(step=2)
    with heart.during(Work.LONG):
        assert read(path).work == Work.LONG
        heart.begin_stage()
        with heart.during(Work.LONG):
            pass
        assert read(path).work == Work.LONG
    assert (read(path).work, read(path).step, read(path).number) == (Work.START, 2, 5)


def test_progress_is_a_sign_of_life_but_no_step(path: Path) -> None:
    heart = Heart(path)
    end = events.subscribe(heart.hear)
    try:
        events.stage("compare", 9)
        for _ in range(5):
            heart.beat()
        before = read(path)
        events.log("nothing")
        assert read(path) == before
        events.progress("compare", 3, 9)
        after = read(path)
        assert after.at > before.at
        assert (after.number, after.work) == (before.number, Work.STEPS)
        events.progress("compare", 9, 9)
        heart.beat()  # the last step is done
        assert read(path).work == Work.LONG, "whatever ends the stage"
        heart.beat()
        assert read(path).work == Work.START, "a step of something else"
    finally:
        end()
