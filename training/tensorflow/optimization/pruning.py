"""Magnitude pruning on every replica, by ``shardmill.training.run.pruning``."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shardmill.training.run.pruning import Pruning, PruningSchedule
from shardmill.training.tensorflow.models.layers import without_weight_decay


class MaskedPruning(Pruning):
    """The masks of a model's weights.

    Attributes:
        schedule: when they are chosen, and how many weights.
        variables: the masks; the state for checkpoints.
    """

    def __init__(self, schedule: PruningSchedule, model: Any, strategy: Any) -> None:
        """Begin with masks that leave everything. Call it in the scope of the strategy."""
        self.schedule = schedule
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

    def after_step(self, steps_done: int) -> None:
        """Choose the weights that become zero where it is time to. Call it after each step of the run."""
        if self.schedule.is_due(steps_done):
            self._choose(tf.constant(self.schedule.sparsity(steps_done), tf.float32))

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
