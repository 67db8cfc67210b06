"""Blocks that are computed twice: the same outputs, gradients and moving statistics as once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmill.infra.errors import ConfigError
from shardmill.training.models import ModelSpec
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.models.layers import freeze_layers

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from shardmill.training.tensorflow.models.rematerialization import rematerialize  # noqa: E402


def nested() -> Any:
    """A backbone with two residual blocks, one of them with dropout, behind a layer of the input."""
    backbone_input = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, padding="same", name="stem")(backbone_input)
    for number in range(3):
        y = keras.layers.BatchNormalization(momentum=0.8)(keras.layers.ReLU()(x))
        y = keras.layers.Conv2D(4, 3, padding="same", name=f"block{number}")(y)
        y = keras.layers.Dropout(0.5, seed=1)(y) if number == 1 else y
        x = keras.layers.Add()([x, y])
    x = keras.layers.GlobalAveragePooling2D()(x)
    backbone = keras.Model(backbone_input, x, name="backbone")
    inputs = keras.Input((8, 8, 3))
    x = backbone(keras.layers.Rescaling(1 / 255)(inputs))
    return keras.Model(inputs, keras.layers.Dense(2, name="logits")(keras.layers.Dropout(0.2, seed=3)(x)))


def stepped(build: Any, *, again: bool, freeze: Any = "none") -> tuple[int, list[Any], list[Any]]:
    """Number of blocks; loss and gradients of a step; and all variables after it."""
    keras.utils.set_random_seed(0)
    model = build()
    freeze_layers(model, freeze)
    found = rematerialize(model) if again else None
    forward = (lambda images: model(images, training=True)) if found is None else found.forward
    images = tf.constant(np.random.default_rng(0).integers(0, 256, (4, *model.input_shape[1:]), np.uint8))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(forward(images)))
        return loss, tape.gradient(loss, model.trainable_variables)

    loss, gradients = step()
    values = [loss.numpy(), *(gradient.numpy() for gradient in gradients)]
    return 0 if found is None else found.num_blocks, values, [one.numpy() for one in model.variables]


@pytest.mark.parametrize(
    ("build", "freeze", "num_blocks"),
    [
        (nested, "none", 3),  # the stem, and the two blocks without dropout
        (nested, ["stem", "block0"], 3),
        pytest.param(
            lambda: build_model(ModelSpec("compact_resnet", 3, 16)), "none", 4, marks=pytest.mark.slow
        ),
    ],
)
def test_a_step_is_the_same(build: Any, freeze: Any, num_blocks: int) -> None:
    _, once, variables = stepped(build, again=False, freeze=freeze)
    number, twice, also = stepped(build, again=True, freeze=freeze)
    assert number == num_blocks
    for found, expected in zip([*twice, *also], [*once, *variables], strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", ["small_cnn", "tests.samples.models.linear_model"])
def test_a_model_without_blocks_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="has too few blocks with short-cuts"):
        rematerialize(build_model(ModelSpec(name, 2, 16)))
