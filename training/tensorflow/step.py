"""One step of training, on every replica: augment the batch, compute loss and gradients, update the weights.

With gradient accumulation, a step takes its rows in parts, one after the other, and adds up their gradients.
The weights of the rows add up to 1 over the whole step, so the sum is the gradient of the global batch. Each
part is a call of its own: in one graph TensorFlow would compute several parts at the same time, which would
save no memory.

AutoGraph is off, because it would take seconds at each start: no function that is compiled here or exported
branches in Python on the value of a tensor.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.infra.errors import ConfigError
from shardmill.training.augment.kinds.mixing import tensorflow_partners as partners
from shardmill.training.augment.parameters import own_share
from shardmill.training.config import TrainConfig
from shardmill.training.run.memory.fallback import does_not_fit
from shardmill.training.tasks.task import Mixed
from shardmill.training.tensorflow.augment_batches import BatchAugment
from shardmill.training.tensorflow.models.layers import in_float32
from shardmill.training.tensorflow.models.normalization import only_real_rows
from shardmill.training.tensorflow.optimization.update import WeightUpdate
from shardmill.training.tensorflow.parts import TrainingParts


class TrainStep:
    """A callable that trains the model of a run on one global batch, and adds to the totals of ``parts``.

    Attributes:
        optimizer: the optimizer of this stage.
    """

    def __init__(
        self, config: TrainConfig, parts: TrainingParts, rows: int, *, head_alone: bool = False
    ) -> None:
        """Prepare the step. Its first call compiles it, for the layers that are trainable now.

        Args:
            config: the configuration of the run.
            parts: the model of the run with all that trains it.
            rows: the number of rows of a step on each replica.
            head_alone: only the classifier learns.

        Raises:
            ConfigError: ``run.accumulate_steps`` does not divide the rows, or ``run.jit_compile`` is set and
                there are several replicas.
        """
        self._parts = parts
        self._pads = config.data.last_batch == "pad"
        self._num_parts = config.run.accumulate_steps
        self._part_rows = _part_rows(config, rows)
        self._augment = BatchAugment(config.augment, deterministic=config.run.deterministic)
        self.optimizer = parts.head.optimizer if head_alone and parts.head is not None else parts.optimizer
        self._update = WeightUpdate(
            parts.model,
            self.optimizer,
            clip_norm=config.optimizer.clip_norm,
            first_layer_factor=1.0 if head_alone else config.optimizer.first_layer_factor,
        )
        self._gradients = self._loss_and_gradients
        if config.run.jit_compile:
            _check_one_device(parts.strategy)
            self._gradients = tf.function(self._gradients, jit_compile=True, autograph=False)
        self._counts: dict[int, Any] = {}
        run = parts.strategy.run
        if self._num_parts == 1:
            self._whole = tf.function(lambda *args: run(self._train, args=args), autograph=False)
            return
        with parts.strategy.scope():
            self._sums = [_replica_zeros(variable) for variable in parts.model.trainable_variables]
        self._part = tf.function(lambda *args: run(self._accumulate, args=args), autograph=False)
        self._finish = tf.function(lambda: run(self._apply_sums), autograph=False)

    def __call__(self, batch: Any, run_step: int, num_real: int) -> None:
        """Take one step.

        Args:
            batch: a dict with the rows of each replica: ``images`` uint8 [rows, S, S, C], ``labels``,
                ``weights`` float32 [rows], and ``parameters`` if the configuration augments batches.
            run_step: the number of the step, over all epochs.
            num_real: the number of real examples (not padding) of the global batch.

        Raises:
            OutOfMemory: it does not fit into memory.
        """
        real = self._counts.get(num_real)
        if real is None:
            real = self._counts[num_real] = tf.constant(num_real, tf.float32)
        try:
            if self._num_parts == 1:
                self._whole(batch, real)
            else:
                for part in range(self._num_parts):
                    self._part(batch, real, tf.constant(part * self._part_rows))
                self._finish()
        except tf.errors.ResourceExhaustedError as error:
            raise does_not_fit(str(error.message)) from error
        if self._parts.pruning is not None:
            self._parts.pruning.after_step(run_step + 1)

    # -- in replica context ----------------------------------------------------------------------------

    def _train(self, batch: Any, num_real: Any) -> None:
        loss, score, gradients = self._gradients(batch)
        self._parts.totals.add(loss * num_real, score)
        self._apply(gradients)

    def _accumulate(self, batch: Any, num_real: Any, start: Any) -> None:
        def rows(column: Any) -> Any:
            part = column[start : start + self._part_rows]
            return tf.ensure_shape(part, [self._part_rows, *column.shape[1:]])

        loss, score, gradients = self._gradients(tf.nest.map_structure(rows, batch))
        self._parts.totals.add(loss * num_real, score)
        for total, gradient in zip(self._sums, gradients, strict=True):
            if gradient is not None:
                total.assign_add(gradient)

    def _apply_sums(self) -> None:
        self._apply([tf.identity(total) for total in self._sums])
        for total in self._sums:
            total.assign(tf.zeros_like(total))

    def _apply(self, gradients: list[Any]) -> None:
        self._parts.totals.add_norm(self._update(gradients))
        if self._parts.pruning is not None:
            self._parts.pruning.keep_zeros()
        if self._parts.averages is not None:
            self._parts.averages.update()

    def _loss_and_gradients(self, batch: Any) -> tuple[Any, Any, list[Any]]:
        """Return the part of these rows in the loss and in the sum of scores, and the gradients."""
        parts, task, model = self._parts, self._parts.task, self._parts.model
        images, labels = batch["images"], batch["labels"]
        drawn = batch.get("parameters", {})
        images, share = self._augment(images, drawn), own_share(drawn)
        mixed = None if share is None else Mixed(partners(labels), share)
        is_real = batch["weights"] > 0
        # The gradient too, since it may compute layers again.
        with only_real_rows(is_real if self._pads else None):
            with tf.GradientTape() as tape:
                outputs = in_float32(parts.outputs(images))
                loss = tf.reduce_sum(task.training_losses(outputs, labels, mixed) * batch["weights"])
                if model.losses:
                    loss += tf.add_n(model.losses) / (parts.strategy.num_replicas_in_sync * self._num_parts)
                scaled = self.optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, model.trainable_variables)
        scores = task.scores(outputs, labels, mixed)
        return loss, tf.reduce_sum(tf.where(is_real, scores, 0.0)), gradients


def _part_rows(config: TrainConfig, rows: int) -> int:
    """Return the number of rows of a part of a step, on one replica."""
    parts = config.run.accumulate_steps
    if rows % parts:
        near = next(number for number in range(parts, 0, -1) if rows % number == 0)
        raise ConfigError(
            f"run.accumulate_steps = {parts} does not divide the {rows} examples of a step on one device",
            f"set it to a divisor, such as {near}, or change data.global_batch_size",
        )
    config.augment.check_pairs(rows // parts)
    return rows // parts


def _check_one_device(strategy: Any) -> None:
    if strategy.num_replicas_in_sync > 1:
        raise ConfigError(
            f"run.jit_compile needs one device; there are {strategy.num_replicas_in_sync}: the replicas "
            "exchange the statistics of batch normalisation in the middle of a step",
            "turn it off, or set run.devices to 'one'",
        )


def _replica_zeros(variable: Any) -> Any:
    """Return a variable of zeros with the same shape and dtype, separate on each replica."""
    return tf.Variable(
        tf.zeros(variable.shape, variable.dtype),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.NONE,
    )
