"""Make the optimizer and its learning-rate schedule from the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from shardmill.infra.errors import ConfigError
from shardmill.training.arrays import Floats
from shardmill.training.config import OptimizerSettings
from shardmill.training.config.optimizer_names import OPTIMIZERS
from shardmill.training.tensorflow.models.layers import without_weight_decay
from shardmill.training.tensorflow.optimization.update import SummedGradients


class TabulatedRates(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule that looks up the rate of a step; behind the last step the last rate goes on."""

    def __init__(self, rates: Floats) -> None:
        self.rates = rates.astype(np.float32)
        self._table = tf.constant(self.rates)

    def __call__(self, step: Any) -> Any:
        """Return the learning rate of a step, float32."""
        return tf.gather(self._table, tf.minimum(tf.cast(step, tf.int64), len(self.rates) - 1))

    def get_config(self) -> dict[str, Any]:
        """Return nothing: the schedule is made from the configuration of the run."""
        return {}


def make_optimizer(settings: OptimizerSettings, rate: Any, model: Any, *, loss_scaling: bool) -> Any:
    """Make the optimizer for the trainable variables of a model, and its state.

    Args:
        settings: the table [train.optimizer].
        rate: the learning rate: a number, which callbacks may change, or a Keras schedule.
        model: the model; weight decay leaves alone what ``without_weight_decay`` names.
        loss_scaling: scale the loss, as float16 needs.

    Raises:
        ConfigError: Keras refuses the value of an option.
    """
    known = OPTIMIZERS[settings.name]
    options = {**known.preset, **settings.options}
    if settings.name != "adam":
        none = 0.0 if settings.name == "adamw" else None  # Keras' AdamW insists on a number
        options["weight_decay"] = settings.decay or none
    try:
        optimizer = _summed(getattr(keras.optimizers, known.class_name))(rate, **options)
        if settings.decay:
            optimizer.exclude_from_weight_decay(var_list=without_weight_decay(model))
        if loss_scaling:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        optimizer.build(model.trainable_variables)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"optimizer.options = {settings.options}: Keras' {known.class_name} refuses them: {error}",
            "see the page of the optimizer in the Keras documentation",
        ) from error
    return optimizer


def last_rate(optimizer: Any, rates: Floats) -> float:
    """Return the learning rate of an optimizer's last step, or of its first one before that.

    A step that is left out, since float16 overflowed, does not count for its schedule.

    Args:
        optimizer: the Keras optimizer.
        rates: those of its schedule, unless its rate is a variable.
    """
    own = optimizer.learning_rate
    if isinstance(own, keras.Variable):
        return float(own.numpy())
    done = max(int(optimizer.iterations.numpy()) - 1, 0)
    return float(np.float32(rates[min(done, len(rates) - 1)]))


def _summed(optimizer_class: type[Any]) -> type[Any]:
    """Return the optimizer for gradients that are summed over the replicas; its name names the variables."""
    return type(optimizer_class.__name__, (SummedGradients, optimizer_class), {})


MixedPrecision = Literal["off", "bfloat16", "float16"]
_WITHOUT_AVX_512 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI")


@contextmanager
def precision(mixed: MixedPrecision) -> Iterator[None]:
    """Build the layers that are made in this block for a precision.

    Layers keep the policy with which they were made. The global policy, which Keras' models read while they
    are built, is put back afterwards: what is built later, such as an export, does not depend on it.

    Raises:
        ConfigError: this processor may not compute in it.
    """
    if mixed != "off":
        _check_instructions(mixed)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32" if mixed == "off" else f"mixed_{mixed}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _check_instructions(mixed: MixedPrecision) -> None:
    """Refuse half precision where oneDNN would end the process by an exception that nothing catches.

    TensorFlow hands half precision to oneDNN if the processor has AVX-512, and computes itself if not. It
    does not know that the environment may forbid oneDNN these instructions.
    """
    import tensorflow as tf

    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        limit = os.environ.get(name, "")
        if limit.upper() in _WITHOUT_AVX_512 and not tf.config.list_logical_devices("GPU"):
            raise ConfigError(
                f"run.mixed_precision = {mixed!r} needs AVX-512 instructions, which {name} = {limit} forbids",
                f"unset {name}, or set run.mixed_precision to off",
            )
