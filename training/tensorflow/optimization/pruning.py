"""Magnitude pruning with the cubic schedule of Zhu and Gupta, "To prune, or not to prune" (2017).

From step b to step e the share of zeros in each layer rises as s(t) = S (1 - (1 - (t - b) / (e - b))^3).
Every few steps the smallest weights of each layer become zero, up to that share, and stay zero: the masks
follow each update of the optimizer. Biases and normalisation layers are left alone.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shardmill.training.config.optimizer import PruningSettings
from shardmill.training.tensorflow.models.layers import without_weight_decay


def sparsity_at(step: int, begin: int, end: int, final: float) -> float:
    """Return the share of zeros after ``step`` steps of a run."""
    left = 1.0 - min(max((step - begin) / max(end - begin, 1), 0.0), 1.0)
    return final * (1.0 - left**3)


class Pruning:
    """The masks of a model's weights.

    Attributes:
        variables: the masks; the state for checkpoints.
    """

    def __init__(self, settings: PruningSettings, model: Any, steps_per_epoch: int, strategy: Any) -> None:
        """Begin with masks that leave everything. Call it in the scope of the strategy."""
        assert settings.end_epochs is not None, "checked by the settings"
        self._final, self._every = settings.final_sparsity, settings.every_steps
        self._begin = int(settings.begin_epochs * steps_per_epoch)
        self._end = max(round(settings.end_epochs * steps_per_epoch), self._begin + 1)
        left_alone = {id(variable) for variable in without_weight_decay(model)}
        self._pairs: list[tuple[Any, Any]] = []
        for variable in model.trainable_variables:
            if id(variable) not in left_alone:
                every, name = np.ones(tuple(variable.shape), bool), f"keep_{variable.path.replace('/', ':')}"
                mask = keras.Variable(every, trainable=False, dtype="bool", name=name)
                self._pairs.append((mask, variable))
        self.variables = [mask for mask, _ in self._pairs]
        self._choose = tf.function(
            lambda sparsity: strategy.run(self._choose_on_replica, args=(sparsity,)), autograph=False
        )

    def is_complete(self, steps_done: int) -> bool:
        """Return whether the final share of zeros is reached after so many steps of the run."""
        return steps_done >= self._end

    def sparsity(self, steps_done: int) -> float:
        """Return the share of zeros that the schedule wants after so many steps of the run."""
        return sparsity_at(steps_done, self._begin, self._end, self._final)

    def after_step(self, steps_done: int) -> None:
        """Choose the weights that become zero where it is time to. Call it after each step of the run."""
        since = steps_done - self._begin
        if since > 0 and steps_done <= self._end and (since % self._every == 0 or steps_done == self._end):
            self._choose(tf.constant(self.sparsity(steps_done), tf.float32))

    def keep_zeros(self) -> None:
        """Make the pruned weights zero again. Call it in replica context, after each update."""

        def on_all(strategy: Any) -> None:
            for mask, variable in self._pairs:
                strategy.extended.update(variable.value, _masked, args=(mask.value,), group=False)

        tf.distribute.get_replica_context().merge_call(on_all)

    def share_of_zeros(self) -> float:
        """Return the share of zeros among the weights that can be pruned."""
        zeros = sum(int(np.count_nonzero(variable.numpy() == 0)) for _, variable in self._pairs)
        return zeros / max(sum(int(np.prod(tuple(mask.shape))) for mask, _ in self._pairs), 1)

    def _choose_on_replica(self, sparsity: Any) -> None:
        def on_all(strategy: Any, sparsity: Any) -> None:
            for mask, variable in self._pairs:
                strategy.extended.update(mask.value, _set_mask, args=(variable.value, sparsity), group=False)

        tf.distribute.get_replica_context().merge_call(on_all, args=(sparsity,))
        self.keep_zeros()


def _masked(variable: Any, mask: Any) -> None:
    variable.assign(tf.where(mask, variable, tf.zeros_like(variable)))


def _set_mask(mask: Any, variable: Any, sparsity: Any) -> None:
    """Leave out the smallest weights of a layer, so many that ``sparsity`` of them are zero."""
    sizes = tf.abs(tf.reshape(variable, [-1]))
    count = tf.cast(tf.round(sparsity * tf.cast(tf.size(sizes), tf.float32)), tf.int32)
    # Weights that are zero already come first, so that they stay zero.
    ranks = tf.argsort(tf.argsort(sizes, stable=True))
    mask.assign(tf.reshape(ranks >= count, mask.shape))
