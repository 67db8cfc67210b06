"""Change the weights by the gradients of one step, on every replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from shardmill.infra.errors import ConfigError
from shardmill.training.tensorflow.models.layers import rate_factors

# Else the schedule would set the rate too.
FREE_RATE = (
    "let it set numbers, and set optimizer.schedule = 'constant' and optimizer.warmup_fraction = 0; or leave "
    "the callback out"
)


class SummedGradients:
    """Mixed into an optimizer of Keras that gets gradients which are already summed over the replicas.

    Keras sums after it has looked at the gradients of each replica alone. The norm of the sum, by which
    gradients are clipped, and whether it is finite, must be known before.
    """

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the next step. It can be set to a number unless a schedule sets it."""
        return super().learning_rate  # type: ignore[misc]

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        if callable(rate) or not isinstance(self.learning_rate, keras.Variable):
            raise ConfigError(
                "a callback sets the learning rate" + (" to a schedule" if callable(rate) else ""),
                FREE_RATE,
            )
        super(SummedGradients, type(self)).learning_rate.fset(self, rate)  # type: ignore[misc]

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars


class WeightUpdate:
    """Applies gradients to the weights of a model: sums, clips, and scales the updates of each layer."""

    def __init__(
        self, model: Any, optimizer: Any, *, clip_norm: float | None, first_layer_factor: float
    ) -> None:
        self._optimizer = optimizer
        self._variables = model.trainable_variables
        self._clip_norm = clip_norm
        self._factors = rate_factors(model, first_layer_factor) if first_layer_factor < 1 else None

    def __call__(self, gradients: Sequence[Any]) -> Any:
        """Update the weights once. Call it in replica context.

        Args:
            gradients: of this replica's part of the (scaled) loss, one for each trainable variable; None for
                a variable on which the loss does not depend.

        Returns:
            The L2 norm of the gradient of the global batch, before it is clipped: float32. Infinite or not a
            number if float16 overflowed; then the weights stay as they are.
        """
        context = tf.distribute.get_replica_context()
        indices = [index for index, gradient in enumerate(gradients) if gradient is not None]
        variables = [self._variables[index] for index in indices]
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, [gradients[index] for index in indices])
        scale = tf.cast(getattr(self._optimizer, "dynamic_scale", 1.0), tf.float32)
        norm = tf.linalg.global_norm(summed)
        if self._clip_norm is not None:
            summed, _ = tf.clip_by_global_norm(summed, self._clip_norm * scale, norm)
        if self._factors is None:
            self._optimizer.apply(summed, variables)
        else:
            before = [tf.identity(variable.value) for variable in variables]
            self._optimizer.apply(summed, variables)
            factors = [self._factors[index] for index in indices]
            context.merge_call(_shorten_updates, args=([v.value for v in variables], before, factors))
        return norm / scale


def _shorten_updates(strategy: Any, variables: list[Any], before: list[Any], factors: list[float]) -> None:
    """Undo a part of each update. A scaled gradient would not do: Adam divides by its size."""

    def shorten(variable: Any, old: Any, factor: float) -> None:
        variable.assign(old + factor * (variable - old))

    for variable, old, factor in zip(variables, before, factors, strict=True):
        if factor < 1:
            strategy.extended.update(variable, shorten, args=(old, factor), group=False)
