"""Exponential moving averages of a model's weights, which are evaluated, kept as the best, and exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf


class WeightAverages:
    """The averages of all floating-point variables of a model, also of moving statistics.

    After n updates the decay is min(decay, (1 + n) / (10 + n)), as in Keras and TensorFlow: the random
    weights of the beginning are soon forgotten.

    Attributes:
        variables: the averages and the number of updates; the state for checkpoints.
        evaluated: a variable for each of ``model.variables``, in their order: its average, or itself where it
            is no floating-point number.
    """

    def __init__(self, model: Any, decay: float) -> None:
        """Begin with the weights that the model has. Call it in the scope of the strategy."""
        self._decay = decay
        self._pairs: list[tuple[Any, Any]] = []
        self.evaluated: list[Any] = []
        for variable in model.variables:
            if not tf.as_dtype(variable.dtype).is_floating:
                self.evaluated.append(variable)
                continue
            name = variable.path.replace("/", ":")
            average = keras.Variable(variable.numpy(), trainable=False, dtype=variable.dtype, name=name)
            self._pairs.append((average, variable))
            self.evaluated.append(average)
        self._num_updates = keras.Variable(0, trainable=False, dtype="int64", name="num_updates")
        self.variables = [*(average for average, _ in self._pairs), self._num_updates]

    def update(self) -> None:
        """Move the averages towards the weights. Call it in replica context, after each step."""
        done = tf.cast(self._num_updates.value, tf.float32)
        share = 1.0 - tf.minimum(self._decay, (1.0 + done) / (10.0 + done))

        def move(average: Any, value: Any, share: Any) -> None:
            average.assign_add(tf.cast(share, average.dtype) * (value - average))

        def on_all(strategy: Any, share: Any) -> None:
            for average, variable in self._pairs:
                strategy.extended.update(average.value, move, args=(variable.value, share), group=False)
            count = self._num_updates.value
            strategy.extended.update(count, lambda number: number.assign_add(1), group=False)

        tf.distribute.get_replica_context().merge_call(on_all, args=(share,))

    @contextmanager
    def in_model(self, strategy: Any) -> Iterator[None]:
        """Let the model have the averages while the block runs."""
        self._exchange(strategy)
        try:
            yield
        finally:
            self._exchange(strategy)

    def _exchange(self, strategy: Any) -> None:
        with strategy.scope():
            for average, variable in self._pairs:
                value = variable.numpy()
                variable.assign(average.numpy())
                average.assign(value)
