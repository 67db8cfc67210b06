"""Moving statistics of batch normalisation catch up within the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmill.training.models import ModelSpec
from shardmill.training.models.changes import momentum_limit
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.models.layers import limit_momentum


@pytest.mark.parametrize(
    ("steps_per_epoch", "total_steps", "limit"),
    [
        (48, 570, 0.9),  # short epochs: averages of ten steps
        (1000, 10_000, 0.99),  # a tenth of an epoch
        (100_000, 1_000_000, 0.9999),
        (10, 10, 0.5),  # a run of ten steps
        (3, 6, 1 / 6),
        (1, 1, 0.0),
    ],
)
def test_the_limit_follows_the_length_of_the_run(
    steps_per_epoch: int, total_steps: int, limit: float
) -> None:
    assert momentum_limit(steps_per_epoch, total_steps) == pytest.approx(limit)


@pytest.mark.parametrize(("epochs", "steps"), [(1, 60), (3, 20), (12, 48), (2, 500), (1, 50_000)])
def test_little_of_the_random_start_is_left_at_the_end(epochs: int, steps: int) -> None:
    left = momentum_limit(steps, epochs * steps) ** (epochs * steps)
    assert left < np.exp(-4.5)


def _deep_model(momentum: float) -> Any:
    """Ten normalised layers, some of them in a model inside the model, as in ``keras.applications``."""
    import keras

    keras.utils.set_random_seed(1)
    inner_input = keras.Input((8,))
    x = inner_input
    for _ in range(8):
        x = keras.layers.Dense(8)(x)
        x = keras.layers.BatchNormalization(momentum=momentum)(x)
        x = keras.layers.ReLU()(x)
    inputs = keras.Input((8,))
    x = keras.Model(inner_input, x)(inputs)
    x = keras.Sequential([keras.layers.Dense(8), keras.layers.BatchNormalization(momentum=momentum)])(x)
    return keras.Model(inputs, keras.layers.Dense(3)(x))


def test_moving_statistics_evaluate_as_batch_statistics_do_after_a_short_run() -> None:
    steps = 60
    images = np.random.default_rng(0).normal(5.0, 3.0, (256, 8)).astype(np.float32)

    def difference(model: Any) -> float:
        """Between outputs by moving and by batch statistics, relative to the spread of the outputs."""
        for _ in range(steps):
            model(images, training=True)
        wanted = np.asarray(model(images, training=True))
        return float(np.abs(np.asarray(model(images, training=False)) - wanted).mean() / wanted.std())

    limited, unlimited = _deep_model(0.999), _deep_model(0.999)
    changed = limit_momentum(limited, momentum_limit(steps, steps))
    assert changed is not None
    assert (changed.num_layers, changed.highest) == (9, 0.999)
    assert "9 layers" in str(changed)
    assert difference(limited) < 0.05
    assert difference(unlimited) > 0.3, "without the limit the test would show nothing"


def test_lower_momenta_stay_as_they_are() -> None:
    assert limit_momentum(build_model(ModelSpec("small_cnn", 3, 16)), 0.9) is None


@pytest.mark.parametrize(("name", "num_layers"), [("MobileNetV3Small", 34)])
def test_models_of_keras_applications_are_limited(name: str, num_layers: int) -> None:
    changed = limit_momentum(build_model(ModelSpec(name, 3, 32)), 0.9)
    assert changed is not None
    assert (changed.num_layers, changed.highest) == (num_layers, 0.999)
