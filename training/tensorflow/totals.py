"""Sums over training steps that stay on the device until they are reported."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from shardmill.training.run.framework import StepTotals


class DeviceTotals:
    """``StepTotals`` in one variable of each replica: a report fetches it once, a step fetches nothing."""

    def __init__(self) -> None:
        """Begin at zero. Call it in the scope of the strategy."""
        self._strategy = tf.distribute.get_strategy()
        # Loss, score, gradient norm, finite norms, those before the first that is not finite, norms that are
        # not, and losses of a replica that are not.
        self._sums = tf.Variable(
            tf.zeros([7], tf.float64),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def add(self, loss: Any, score: Any) -> None:
        """Add this replica's part of a step. Call it in replica context.

        Args:
            loss: float32, this replica's part of the mean loss, times the number of real examples.
            score: float32, the sum of the scores of its real examples.
        """
        loss, score = tf.cast(loss, tf.float64), tf.cast(score, tf.float64)
        not_finite = 1.0 - tf.cast(tf.math.is_finite(loss), tf.float64)
        self._sums.assign_add(tf.stack([loss, score, *[tf.zeros([], tf.float64)] * 4, not_finite]))

    def add_norm(self, norm: Any) -> None:
        """Add the gradient norm of a step (float32, the same on all replicas). Call it in replica context."""
        zero = tf.zeros([], tf.float64)
        share = tf.constant(1.0 / tf.distribute.get_replica_context().num_replicas_in_sync, tf.float64)
        finite = tf.where(tf.math.is_finite(norm), share, zero)
        sound = tf.where(self._sums[5] > 0, zero, finite)
        own = tf.cast(norm, tf.float64) * share
        self._sums.assign_add(tf.stack([zero, zero, own, finite, sound, share - finite, zero]))

    def take(self) -> StepTotals:
        """Fetch the sums, and begin again at zero. It waits for the steps on the device."""
        loss, score, norm, finite, sound, *_ = self._sums.numpy().tolist()
        not_finite = 0.0
        if not math.isfinite(loss):
            own = self._strategy.experimental_local_results(self._sums)
            not_finite = sum(float(replica.numpy()[-1]) for replica in own)
        self._sums.assign(tf.zeros([7], tf.float64))
        return StepTotals(loss, score, norm, round(finite), round(sound), round(not_finite))
