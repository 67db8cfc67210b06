"""The numbers that separate random streams: pinned, and never shared."""

from __future__ import annotations

from shardmill.training.order.streams import BatchStream, ImageStream, Purpose

_TRIES = 10  # numbers that area and aspect ratio take (shardmill.training.augment.windows)
_MOST_OPERATIONS = 4  # of RandAugment (AugmentSettings)


def test_the_values_never_change() -> None:
    assert [purpose.value for purpose in Purpose] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 24, 61, 62]
    assert [stream.value for stream in ImageStream] == [0, 100, 200, 300, 400, 401, 600, 601, 602, 603, 700]
    assert [stream.value for stream in BatchStream] == [0, 100, 200, 201, 202, 203, 204]


def test_streams_that_take_several_numbers_do_not_reach_the_next_one() -> None:
    for first, width in ((ImageStream.AREA, _TRIES), (ImageStream.ASPECT_RATIO, _TRIES)):
        assert not {*range(first + 1, first + width)} & {*ImageStream}
    for first in (BatchStream.OPERATION, BatchStream.SIGN):
        assert not {*range(first + 1, first + _MOST_OPERATIONS)} & {*BatchStream}
