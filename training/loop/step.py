"""One step of training, on every replica: augment the batch, loss, gradients, update."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from training.augment.batched import BatchAugment, dominating_labels, mixed_loss
from training.config import TrainConfig


def make_train_step(config: TrainConfig, strategy: Any, model: Any, optimizer: Any) -> Any:
    """Return a function: batch -> (loss of the global batch, number of right predictions).

    Where examples are mixed, the loss is against both labels in their shares, and a prediction is right where
    it is the label with the greater share.
    """
    settings, smoothing = config.augment, config.optimizer.label_smoothing
    augment = None
    if settings.is_batched:
        augment = BatchAugment(mixes=settings.mixes, deterministic=config.run.deterministic)

    def on_replica(batch: Any) -> Any:
        images, labels = batch["images"], batch["labels"]
        own_share = batch["parameters"].own_share if settings.mixes else None
        if augment is not None:
            images = augment(images, batch["parameters"])
        with tf.GradientTape() as tape:
            logits = tf.cast(model(images, training=True), tf.float32)

            def loss_of(wanted: Any) -> Any:
                return _cross_entropy(wanted, logits, smoothing)

            losses = mixed_loss(loss_of, labels, own_share) if settings.mixes else loss_of(labels)
            loss = tf.reduce_sum(losses * batch["weights"])
            if model.losses:
                loss += tf.add_n(model.losses) / strategy.num_replicas_in_sync
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        # Sums the gradients over the replicas. The weights have already divided the losses by the global
        # batch.
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        right = dominating_labels(labels, own_share) if settings.mixes else labels
        hits = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), right)
        return loss, tf.reduce_sum(tf.cast(hits & (batch["weights"] > 0), tf.int32))

    def step(batch: Any) -> Any:
        loss, num_correct = strategy.run(on_replica, args=(batch,))
        total = tf.distribute.ReduceOp.SUM
        return strategy.reduce(total, loss, axis=None), strategy.reduce(total, num_correct, axis=None)

    return tf.function(step)


def _cross_entropy(labels: Any, logits: Any, label_smoothing: float) -> Any:
    """Return the cross-entropy of each example: float32 [b]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    if not label_smoothing:
        return losses
    spread = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)
    return (1 - label_smoothing) * losses + label_smoothing * spread
