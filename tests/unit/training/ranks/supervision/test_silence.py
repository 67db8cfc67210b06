"""The longest silence of a rank that does not yet count as hung."""

from __future__ import annotations

import pytest

from training.ranks.heartbeat import Beat
from training.ranks.supervision.silence import AllowedSilence, Limits

LEARNED = Limits(start=600.0, step=None, stop=20.0)
LOOK_SECONDS = 0.05


def allowed_after(allowed: AllowedSilence, beat: Beat, silent_seconds: float) -> float:
    """Look at a rank until it has been silent for so long; return what it is allowed then."""
    found = 0.0
    for look in range(1, round(silent_seconds / LOOK_SECONDS) + 1):
        found = allowed.seconds(beat, look * LOOK_SECONDS)
    return found


@pytest.mark.parametrize(
    ("slowest_step", "wanted"),
    [
        pytest.param(0.2, 60.0, id="quick steps: at least a minute"),
        pytest.param(5.0, 100.0, id="20 times the slowest"),
    ],
)
def test_a_rank_that_hangs_does_not_extend_its_own_limit(slowest_step: float, wanted: float) -> None:
    allowed = AllowedSilence(LEARNED)
    for number in range(1, 4):
        assert allowed_after(allowed, Beat(number, number), 90.0) == LEARNED.start  # both compile
    for number, seconds in ((4, 0.1), (5, slowest_step), (6, 0.1)):
        allowed_after(allowed, Beat(number, number), seconds)
    for silent in (0.1, 30.0, 59.0, 300.0):
        assert allowed_after(allowed, Beat(8, 8), silent) == pytest.approx(wanted)


def test_a_new_stage_may_compile_again() -> None:
    allowed = AllowedSilence(LEARNED)
    allowed_after(allowed, Beat(40, 40), 0.1)
    assert allowed_after(allowed, Beat(40, 40), 0.1) == 60.0
    assert allowed_after(allowed, Beat(41, 1), 0.1) == LEARNED.start


def test_a_setting_wins() -> None:
    allowed = AllowedSilence(Limits(start=600.0, step=7.0, stop=20.0))
    assert allowed_after(allowed, Beat(3, 3), 0.1) == 600.0
    assert allowed_after(allowed, Beat(9, 9), 90.0) == 7.0
