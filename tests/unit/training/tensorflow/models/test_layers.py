"""Freezing: which layers stop learning, and that nothing of them changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmill.infra.errors import ConfigError
from shardmill.training.config import TrainConfig
from shardmill.training.models.changes import Freeze
from shardmill.training.tensorflow.models.layers import freeze_layers, weighted_layers


def _model() -> Any:
    """A backbone inside the model, as those of ``keras.applications``, and a classifier."""
    import keras

    keras.utils.set_random_seed(0)
    backbone_input = keras.Input((4,))
    x = keras.layers.Dense(6, name="stem")(backbone_input)
    x = keras.layers.BatchNormalization(name="stem_bn", momentum=0.5)(x)
    x = keras.layers.Dense(5, name="block1")(x)
    backbone = keras.Model(backbone_input, x, name="backbone")
    inputs = keras.Input((4,))
    x = keras.layers.Dropout(0.1)(backbone(inputs))
    return keras.Model(inputs, keras.layers.Dense(3, name="logits")(x), name="whole")


@pytest.mark.parametrize(
    ("freeze", "learning"),
    [
        ("none", ["stem", "stem_bn", "block1", "logits"]),
        ("backbone", ["logits"]),
        (1, ["stem_bn", "block1", "logits"]),
        (2, ["block1", "logits"]),
        (["stem*"], ["block1", "logits"]),
        (["backbone"], ["logits"]),
        (["stem", "logits"], ["stem_bn", "block1"]),
    ],
)
def test_the_layers_that_go_on_learning(freeze: Freeze, learning: list[str]) -> None:
    model = _model()
    frozen = freeze_layers(model, freeze)
    assert [layer.name for layer in weighted_layers(model) if layer.trainable] == learning
    assert (frozen is None) == (freeze == "none")
    if frozen is not None:
        assert frozen.num_layers == 4 - len(learning)
        assert frozen.of_parameters == model.count_params()


def test_frozen_layers_stay_as_they_are_with_their_moving_statistics() -> None:
    import keras
    import tensorflow as tf

    model = _model()
    freeze_layers(model, "backbone")
    optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.1)
    before = {weight.path: weight.numpy() for weight in model.weights}
    images = np.random.default_rng(0).normal(9.0, 4.0, (16, 4)).astype(np.float32)
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(images, training=True) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    changed = {weight.path for weight in model.weights if (before[weight.path] != weight.numpy()).any()}
    assert changed == {"logits/kernel", "logits/bias"}


@pytest.mark.parametrize(
    ("freeze", "message", "remedy"),
    [
        (99, "leaves no layer of whole to train; it has 4 layers with weights", "fewer"),
        (["*"], "leaves no layer", "fewer"),
        (["blok1"], "no layer 'blok1'", "block1"),
    ],
)
def test_what_cannot_be_frozen_is_said(freeze: Freeze, message: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        freeze_layers(_model(), freeze)
    assert remedy in str(caught.value.remedy)


@pytest.mark.parametrize("value", ["head", 0, -3, True, [], [1], 1.5])
def test_other_values_of_the_setting_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a number of layers, or a list of names"):
        TrainConfig.model_validate({"model": {"freeze": value, "weights": "x.weights.h5"}})


def test_freezing_random_weights_is_refused() -> None:
    with pytest.raises(ValueError, match=r"set model.weights too"):
        TrainConfig.model_validate({"model": {"freeze": "backbone"}})
    own = TrainConfig.model_validate(
        {"model": {"freeze": ["a*"], "name": "tests.samples.models.linear_model"}}
    )
    assert own.model.freeze == ("a*",)
