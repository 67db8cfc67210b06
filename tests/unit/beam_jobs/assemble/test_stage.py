"""container = auto: sizes over a sample decide, and the choice says why."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.beam_jobs.assemble.stage import decide
from shardmill.infra.format.examples import ImageRecord, build_example


def example(image: bytes) -> bytes:
    return build_example(ImageRecord("0" * 16, image, 0, "a", 64, 64, 3))


def noise(length: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, length, np.uint8).tobytes()


@pytest.mark.parametrize(
    ("images", "container", "says"),
    [
        ([noise(20_000, seed) for seed in range(3)], "none", "of 3 sampled records; 5% would be worth"),
        ([bytes(12_288)] * 2, "gzip", "of 2 sampled records"),
        ([bytes(12_288)], "gzip", "of the one record"),
        ([noise(94_000, 1) + bytes(6_000)], "gzip", "saves 5."),
        ([noise(98_000, 1) + bytes(2_000)], "none", "saves 1."),
        ([], "none", "there is no record to try"),
    ],
)
def test_gzip_where_it_saves_enough(images: list[bytes], container: str, says: str) -> None:
    choice = decide(map(example, images))
    assert choice.container == container
    assert choice.reason.startswith("auto: ")
    assert says in choice.reason
