"""One step of training, on every replica: augment the batch, loss, gradients, update."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from training.augment.batched import BatchAugment
from training.config import TrainConfig
from training.loop.optimization.update import WeightUpdate
from training.tasks.task import Task


def make_train_step(config: TrainConfig, strategy: Any, model: Any, optimizer: Any, task: Task) -> Any:
    """Return a function: batch -> (loss of the global batch, sum of the scores of its real examples).

    Both are float32 scalars. The scores are those of the task; of a classifier, their sum is the number of
    hits.
    """
    settings = config.augment
    augment = None
    if settings.is_batched:
        augment = BatchAugment(mixes=settings.mixes, deterministic=config.run.deterministic)
    update = WeightUpdate(
        model,
        optimizer,
        clip_norm=config.optimizer.clip_norm,
        first_layer_factor=config.optimizer.first_layer_factor,
    )

    def on_replica(batch: Any) -> Any:
        images, labels = batch["images"], batch["labels"]
        own_share = batch["parameters"].own_share if settings.mixes else None
        if augment is not None:
            images = augment(images, batch["parameters"])
        with tf.GradientTape() as tape:
            outputs = tf.cast(model(images, training=True), tf.float32)
            loss = tf.reduce_sum(task.training_losses(outputs, labels, own_share) * batch["weights"])
            if model.losses:
                loss += tf.add_n(model.losses) / strategy.num_replicas_in_sync
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        # Sums the gradients over the replicas. The weights have already divided the losses by the global
        # batch.
        update(gradients)
        scores = task.scores(outputs, labels, own_share)
        return loss, tf.reduce_sum(tf.where(batch["weights"] > 0, scores, 0.0))

    def step(batch: Any) -> Any:
        loss, score = strategy.run(on_replica, args=(batch,))
        total = tf.distribute.ReduceOp.SUM
        return strategy.reduce(total, loss, axis=None), strategy.reduce(total, score, axis=None)

    return tf.function(step)
