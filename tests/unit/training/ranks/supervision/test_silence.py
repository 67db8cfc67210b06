"""The silence of ranks that tells of a hang, and the silence that does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shardmill.training.config import TrainConfig
from shardmill.training.ranks.heartbeat import Beat, Work
from shardmill.training.ranks.supervision.running_rank import RankState
from shardmill.training.ranks.supervision.silence import Limits, SilenceWatch
from shardmill.training.run.ranks import limits_of

DEFAULT = limits_of(TrainConfig(), "datasets")
START = DEFAULT.start


def sign(
    silent: float = 0.0, work: Work = Work.STEPS, idle: float = 0.0, number: int = 9, step: int = 0
) -> RankState:
    return RankState(None, Beat(number, work, step), silent, idle)


def hangs(limits: Limits, *signs: RankState) -> bool:
    return SilenceWatch(limits).look(dict(enumerate(signs))) is not None


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        pytest.param([sign(9.9), sign(9.9)], False, id="not for long"),
        pytest.param([sign(10.1), sign(10.1)], True, id="both silent between steps, whatever they compute"),
        pytest.param([sign(10.1), sign(10.1, Work.START)], False, id="waits for one that compiles"),
        pytest.param([sign(10.1), sign(10.1, Work.LONG)], False, id="waits for one that saves"),
        pytest.param([sign(START + 1, Work.START), sign(START + 1)], True, id="compiles for too long"),
        pytest.param([sign(START + 1, Work.LONG), sign(START + 1)], True, id="saves for too long"),
        pytest.param([sign(99, Work.START), sign(99, Work.START, idle=99)], False, id="one compiles"),
        pytest.param([sign(11, Work.START, idle=11), sign(11, Work.START, idle=11)], True, id="idle start"),
        pytest.param([sign(11, Work.START, idle=11), sign(11, idle=11)], True, id="idle in a first step"),
        pytest.param([sign(11, Work.START, idle=9), sign(11, idle=11)], False, id="was busy"),
        pytest.param([sign(99, Work.LONG, idle=99), sign(99, idle=99)], False, id="waits for a disk"),
        pytest.param([sign(99, Work.LONG, idle=99)], False, id="exports alone"),
        pytest.param([], False, id="all have ended"),
    ],
)  # fmt: skip
def test_ranks_with_the_default_settings(signs: list[RankState], expected: bool) -> None:
    assert hangs(DEFAULT, *signs) is expected


def test_a_hang_is_noticed_long_before_15_seconds_have_passed() -> None:
    assert DEFAULT.step is None
    assert DEFAULT.least == DEFAULT.idle == 10.0


def seen(watch: SilenceWatch, limits_seconds: float) -> tuple[bool, bool]:
    """Whether a silence just below, and one just above so many seconds counts as a hang."""
    below, above = (watch.look({0: sign(limits_seconds + apart, number=99)}) for apart in (-0.1, 0.1))
    return below is not None, above is not None


@pytest.mark.parametrize(
    ("slowest_step", "wanted"),
    [
        pytest.param(0.2, 10.0, id="quick steps: at least ten seconds"),
        pytest.param(5.0, 100.0, id="20 times the slowest"),
    ],
)
def test_slow_steps_may_be_silent_for_longer(slowest_step: float, wanted: float) -> None:
    watch = SilenceWatch(DEFAULT)
    watch.look({0: sign(90.0, Work.START, number=3)})  # it compiles
    for number, seconds in ((4, 0.1), (5, slowest_step), (6, 0.1), (99, 0.0)):
        watch.look({0: sign(seconds, number=number)})
    assert seen(watch, wanted) == (False, True)
    assert seen(watch, wanted) == (False, True), "a hang does not extend its own limit"


def test_a_wait_for_a_rank_that_saves_is_no_slow_step() -> None:
    watch = SilenceWatch(DEFAULT)
    for number, other in ((7, Work.LONG), (8, Work.STEPS)):
        watch.look({0: sign(8.0, number=number), 1: sign(8.0, other, number=number)})
    watch.look({0: sign(0.1, number=8), 1: sign(0.1, number=8)})
    assert seen(watch, 10.0) == (False, True)


def test_a_setting_wins() -> None:
    limits = replace(DEFAULT, step=30.0)
    assert not hangs(limits, sign(29, idle=29))
    assert hangs(limits, sign(31))
    assert hangs(limits, sign(31, Work.START, idle=31))
    assert not hangs(limits, sign(31, Work.START))


def test_ranks_on_other_machines_or_with_an_object_store_may_wait_for_the_network() -> None:
    config = TrainConfig()
    peers = config.ranks.peer_timeout_seconds
    assert limits_of(config, "s3://bucket/datasets").least == peers
    assert limits_of(config, Path("datasets")).least < peers
    ray = config.model_copy(update={"ranks": config.ranks.model_copy(update={"launcher": "ray"})})
    assert limits_of(ray, "datasets").least == peers


def test_a_rank_whose_peers_are_not_seen_may_be_idle_while_it_starts() -> None:
    limits = replace(DEFAULT, sees_all=False)
    assert not hangs(limits, sign(99, Work.START, idle=99))
    assert hangs(limits, sign(START + 1, Work.START))
