"""Run-length encoded BMPs: every code means what the format says."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from tests.samples.images.bmps import RunLengthPainter, painted

PALETTE = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 99, 199]], np.uint8)


@pytest.mark.parametrize("bits", [4, 8])
def test_random_codes(bits: int) -> None:
    for seed in range(300):
        data, expected = painted(seed, bits)
        assert np.array_equal(codecs.decode(data).pixels, expected), seed


@pytest.mark.parametrize("bits", [4, 8])
def test_a_literal_run_of_odd_length_and_an_empty_row(bits: int) -> None:
    painter = RunLengthPainter(4, 7, bits)
    painter.literal([1, 2, 3])
    painter.run(4, 4, 1)
    painter.end_row()
    painter.end_row()
    painter.literal([3, 2, 1, 4, 3])
    decoded = codecs.decode(painter.file(PALETTE))
    assert decoded.source.color == "palette"
    assert np.array_equal(decoded.pixels, painter.picture(PALETTE))


@pytest.mark.parametrize("bits", [4, 8])
def test_a_file_that_ends_early_is_truncated(bits: int) -> None:
    painter = RunLengthPainter(20, 30, bits)
    for _ in range(19):
        painter.literal([1, 2, 3] * 10)
        painter.end_row()
    painter.literal([1, 2, 3] * 10)
    data, whole = painter.file(PALETTE), painter.picture(PALETTE)
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(data[:-100])
    assert caught.value.reason == "truncated"
    salvaged = codecs.decode(data[:-100], allow_truncated=True)
    assert salvaged.source.salvaged
    assert np.array_equal(salvaged.pixels[10:], whole[10:])  # the bottom row comes first


def test_two_greys_and_a_file_without_its_end_code() -> None:
    painter = RunLengthPainter(2, 8, 8)
    for row in ([0, 1, 1, 0, 1, 0, 0, 0], [1, 1, 1, 1, 0, 1, 0, 1]):
        painter.literal(row)
        painter.end_row()
    palette = np.array([[0, 0, 0], [255, 255, 255]], np.uint8)
    decoded = codecs.decode(painter.file(palette)[:-2])
    assert np.array_equal(decoded.pixels, painter.picture(palette))


def test_a_run_beyond_its_row_is_cut() -> None:
    painter = RunLengthPainter(2, 8, 8)
    painter.run(8, 3, 3)
    painter.end_row()
    painter.run(8, 4, 4)
    data = painter.file(PALETTE).replace(bytes([8, 3, 0, 0]), bytes([11, 3, 0, 0]))
    assert np.array_equal(codecs.decode(data).pixels, painter.picture(PALETTE))


def test_codes_beyond_the_picture_are_damage() -> None:
    painter = RunLengthPainter(2, 8, 4)
    painter.run(8, 1, 2)
    painter.codes += bytes([0, 4, 0x12, 0x34])
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(painter.file(PALETTE))
    assert caught.value.reason == "corrupt"
