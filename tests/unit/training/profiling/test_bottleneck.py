"""The bottleneck that a profile names, and its remedy."""

from __future__ import annotations

import pytest

from shardmill.training.profiling.bottleneck import Rates, find_bottleneck
from shardmill.training.profiling.stages import Stage

EVEN = {
    "plan": 1.0,
    "read (first time)": 20.0,
    "read": 5.0,
    "inflate": 5.0,
    "decode": 300.0,
    "resize": 80.0,
    "augment": 9.0,
}


@pytest.mark.parametrize(
    ("costs", "rates", "stored_side", "stage", "remedy"),
    [
        ({}, Rates(4000), 256, "decode", "more CPU cores"),
        ({}, Rates(4000), 512, "decode", "image.size = 256"),
        ({"resize": 900.0}, Rates(1500), 256, "resize", "nearer to the size"),
        ({"resize": 900.0}, Rates(1500), 800, "resize", "image.size = 256"),
        ({"augment": 600.0}, Rates(1500), 256, "augment", "augment.randaugment"),
        ({"inflate": 500.0}, Rates(1500), 256, "inflate", "container = 'none'"),
        ({"read (first time)": 9000.0}, Rates(200), 256, "read (first time)", "reading.cache"),
        ({}, Rates(4000, 3900, 900, 800), 256, "model", "mixed_precision"),
        ({}, Rates(4000, 3900, 9000, 3500), 256, "decode", "more CPU cores"),
        # About as fast as the model: the next faster device would wait.
        ({}, Rates(4000, 1000, 980, 700), 256, "decode", "more CPU cores"),
    ],
)
def test_the_bottleneck_has_a_remedy(
    costs: dict[str, float], rates: Rates, stored_side: float, stage: str, remedy: str
) -> None:
    stages = [Stage(name, microseconds) for name, microseconds in (EVEN | costs).items()]
    found = find_bottleneck(stages, rates, num_cpus=2, stored_side=stored_side, image_size=224)
    assert found.stage == stage
    assert remedy in found.remedy
    assert found.reason


def test_what_the_model_could_take_is_said() -> None:
    stages = [Stage(name, microseconds) for name, microseconds in EVEN.items()]
    found = find_bottleneck(
        stages, Rates(4000, 3900, 9000, 3500), num_cpus=2, stored_side=256, image_size=224
    )
    assert "the model could take 9,000 images/s and gets 3,900" in found.reason
    assert "75% of the work on an image: 300 of 400 µs" in found.reason
