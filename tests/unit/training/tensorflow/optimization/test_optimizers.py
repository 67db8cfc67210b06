"""Optimizers by name, and what they do to the weights of small models."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import OptimizerSettings, TrainConfig
from shardmill.training.config.optimizer_names import OPTIMIZERS

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


def small_model() -> Any:
    """Convolution, normalisation, attention with biases of two dimensions, and a classifier."""
    inputs = keras.Input((4, 4, 3))
    x = keras.layers.Conv2D(4, 3, name="conv")(inputs)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Reshape((4, 4))(x)
    x = keras.layers.MultiHeadAttention(2, 2, name="attention")(x, x)
    return keras.Model(inputs, keras.layers.Dense(2, name="logits")(keras.layers.Flatten()(x)))


def stepped(settings: dict[str, Any], gradient: float, steps: int = 1) -> tuple[Any, list[Any], list[Any]]:
    """The model, its weights at the beginning, and after steps with the same gradient everywhere."""
    from shardmill.training.tensorflow.optimization.optimizers import make_optimizer
    from shardmill.training.tensorflow.optimization.update import WeightUpdate

    checked = OptimizerSettings.model_validate(settings)
    model = small_model()
    optimizer = make_optimizer(checked, checked.rate, model, loss_scaling=False)
    update = WeightUpdate(
        model, optimizer, clip_norm=checked.clip_norm, first_layer_factor=checked.first_layer_factor
    )
    before = [variable.numpy() for variable in model.trainable_variables]
    for _ in range(steps):
        update([tf.fill(variable.shape, gradient) for variable in model.trainable_variables])
    return model, before, [variable.numpy() for variable in model.trainable_variables]


def test_the_table_of_optimizers_is_that_of_keras() -> None:
    from shardmill.training.config.optimizer_names import NOT_OFFERED, SETTINGS_INSTEAD

    found = {
        name.lower(): value
        for name, value in vars(keras.optimizers).items()
        if inspect.isclass(value) and issubclass(value, keras.optimizers.Optimizer)
    }
    del found["optimizer"]
    assert found.keys() == OPTIMIZERS.keys() | NOT_OFFERED.keys()
    for name, known in OPTIMIZERS.items():
        assert known.class_name == found[name].__name__
        parameters = set(inspect.signature(found[name].__init__).parameters) - {"self", "kwargs", "name"}
        assert set(known.options) == parameters - set(SETTINGS_INSTEAD), name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_steps(name: str) -> None:
    _, before, after = stepped({"name": name}, 0.1, steps=2)
    assert all(np.isfinite(value).all() for value in after)
    assert all(not np.array_equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["optimizer.name=adamz"], "did you mean 'adam"),
        (["optimizer.name=ScheduleFreeAdamW"], "cannot be used here"),
        (["optimizer.options={beta_3 = 0.9}"], "adamw has no option 'beta_3' (did you mean 'beta_"),
        (["optimizer.options={global_clipnorm = 1}"], "set optimizer.clip_norm"),
        (["optimizer.name=adam", "optimizer.weight_decay=0.1"], "'adamw', which is Adam with weight decay"),
        (["optimizer.schedule=step"], "do not go together"),
        (["optimizer.schedule=step", "optimizer.step_epochs=[3, 2]"], "not positive and rising"),
        (["optimizer.schedule=constant", "optimizer.final_factor=0.1"], "not to 'constant'"),
    ],
)
def test_wrong_settings_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(TrainConfig, section="train", overrides=settings)
    assert message in str(caught.value)


def test_a_value_that_keras_refuses_is_named() -> None:
    with pytest.raises(ConfigError, match=r"options = .*momentum.*Keras' SGD refuses them"):
        stepped({"name": "sgd", "options": {"momentum": 7.0}}, 0.1)


def test_the_defaults_belong_to_the_optimizer() -> None:
    found = {name: OptimizerSettings(name=name) for name in ("adamw", "adam", "sgd", "lion")}
    assert {name: (one.rate, one.decay) for name, one in found.items()} == {
        "adamw": (2e-3, 1e-2), "adam": (1e-3, 0.0), "sgd": (0.05, 5e-4), "lion": (3e-4, 0.1),
    }  # fmt: skip
    assert OptimizerSettings(name="SGD").name == "sgd"


def test_weight_decay_skips_biases_and_normalisation_by_layer() -> None:
    """With a gradient of 0 the decay alone moves weights: by rate * decay."""
    model, before, after = stepped({"name": "adamw", "learning_rate": 0.1, "weight_decay": 0.5}, 0.0)
    decayed = []
    for variable, old, new in zip(model.trainable_variables, before, after, strict=True):
        if not np.array_equal(old, new):
            decayed.append(variable.path)
            assert new == pytest.approx(old * 0.95, rel=1e-5)
    assert decayed == [
        "conv/kernel", "attention/query/kernel", "attention/key/kernel", "attention/value/kernel",
        "attention/attention_output/kernel", "logits/kernel",
    ]  # fmt: skip


def test_long_gradients_are_scaled_down_as_one() -> None:
    sgd = {"name": "sgd", "learning_rate": 1.0, "weight_decay": 0.0, "options": {"momentum": 0.0}}
    for gradient, length in ((10.0, 2.0), (1e-3, None)):
        model, before, after = stepped(
            {**sgd, "options": {"momentum": 0.0, "nesterov": False}, "clip_norm": 2.0}, gradient
        )
        moved = np.concatenate([(old - new).ravel() for old, new in zip(before, after, strict=True)])
        whole = gradient * np.sqrt(model.count_params() - 8)  # without the moving statistics
        assert np.linalg.norm(moved) == pytest.approx(length or whole, rel=1e-4)


def test_layers_near_the_input_move_less_also_with_adam() -> None:
    model, before, after = stepped({"name": "adam", "learning_rate": 0.01, "first_layer_factor": 0.01}, 0.1)
    moved = {
        variable.path.split("/")[-2] if "attention/" in variable.path else variable.path.split("/")[0]: float(
            np.abs(old - new).mean()
        )
        for variable, old, new in zip(model.trainable_variables, before, after, strict=True)
    }
    assert list(moved) == ["conv", "norm", "query", "key", "value", "attention_output", "logits"]
    expected = [0.01 * 0.01 ** (1 - number / 6) for number in range(7)]
    assert list(moved.values()) == pytest.approx(expected, rel=1e-2)
