"""Sums over training steps that stay on the device until they are reported."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from training.loop.epochs.reports import StepTotals


class DeviceTotals:
    """``StepTotals`` in one variable of each replica: a report fetches it once, a step fetches nothing."""

    def __init__(self) -> None:
        """Begin at zero. Call it in the scope of the strategy."""
        self._strategy = tf.distribute.get_strategy()
        # Loss, score, gradient norm, finite norms, and losses of a replica that are not finite.
        self._sums = tf.Variable(
            tf.zeros([5], tf.float64),
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
        zero = tf.zeros([], tf.float64)
        loss, score = tf.cast(loss, tf.float64), tf.cast(score, tf.float64)
        not_finite = 1.0 - tf.cast(tf.math.is_finite(loss), tf.float64)
        self._sums.assign_add(tf.stack([loss, score, zero, zero, not_finite]))

    def add_norm(self, norm: Any) -> None:
        """Add the gradient norm of a step (float32, the same on all replicas). Call it in replica context."""
        zero = tf.zeros([], tf.float64)
        share = 1.0 / tf.distribute.get_replica_context().num_replicas_in_sync
        finite = tf.math.is_finite(norm)
        own = tf.cast(tf.where(finite, norm, 0.0) * share, tf.float64)
        self._sums.assign_add(tf.stack([zero, zero, own, tf.cast(finite, tf.float64) * share, zero]))

    def take(self) -> StepTotals:
        """Fetch the sums, and begin again at zero. It waits for the steps on the device."""
        loss, score, norm, finite, _ = self._sums.numpy().tolist()
        not_finite = 0.0
        if not math.isfinite(loss):
            own = self._strategy.experimental_local_results(self._sums)
            not_finite = sum(float(replica.numpy()[-1]) for replica in own)
        self._sums.assign(tf.zeros([5], tf.float64))
        return StepTotals(loss, score, norm, round(finite), round(not_finite))
