"""The model of a run with everything that trains it, built from the configuration."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.training.config import TrainConfig
from shardmill.training.models import ModelSpec
from shardmill.training.models.changes import momentum_limit
from shardmill.training.run.framework import Head, StepTotals, model_spec
from shardmill.training.run.pruning import PruningSchedule
from shardmill.training.schedules import Stages
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tasks.task import Task
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.models.layers import (
    HeadAlone,
    freeze_layers,
    limit_momentum,
    weighted_layers,
)
from shardmill.training.tensorflow.models.rematerialization import Rematerialized, rematerialize
from shardmill.training.tensorflow.models.weights import load_initial
from shardmill.training.tensorflow.operations import OPERATIONS
from shardmill.training.tensorflow.optimization.optimizers import TabulatedRates, make_optimizer, precision
from shardmill.training.tensorflow.optimization.update import MaskedPruning, WeightAverages


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


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """The objects that training, evaluation and export share.

    Attributes:
        strategy: the ``tf.distribute.Strategy``.
        task: labels, loss and measures.
        spec: the parameters from which the model was built.
        model: the Keras model.
        optimizer: the Keras optimizer.
        stages: the learning rate of each step.
        head: the classifier, if it learns alone at first.
        totals: the sums of the steps since the last report.
        averages: the moving averages of the weights; None: the weights themselves are evaluated.
        pruning: makes weights zero; None: all stay.
        rematerialized: the forward pass in training that keeps less in memory; None: that of the model.
        notes: what was changed in the model, for the result.
    """

    strategy: Any
    task: Task
    spec: ModelSpec
    model: Any
    optimizer: Any
    stages: Stages
    head: Head | None
    totals: DeviceTotals
    averages: WeightAverages | None
    pruning: MaskedPruning | None = None
    rematerialized: Rematerialized | None = None
    notes: tuple[str, ...] = ()

    def outputs(self, images: Any) -> Any:
        """Return the outputs of the model in training."""
        if self.rematerialized is not None:
            return self.rematerialized.forward(images)
        return self.model(images, training=True)

    @property
    def state(self) -> list[Any]:
        """All variables of a checkpoint. First those that are evaluated, in the order of the model's."""
        own = [*self.model.variables, *self.optimizer.variables]
        if self.head is not None:
            own += self.head.optimizer.variables
        if self.pruning is not None:
            own += self.pruning.variables
        if self.averages is None:
            return own
        return [*self.averages.evaluated, *own, *self.averages.variables]

    @property
    def model_state(self) -> list[Any]:
        """The variables of the model."""
        return list(self.model.variables)

    def evaluated(self) -> AbstractContextManager[None]:
        """Let the model have the weights that are evaluated, kept as the best and exported."""
        if self.averages is None:
            return nullcontext()
        return self.averages.in_model(self.strategy)


def build_parts(
    config: TrainConfig, strategy: Any, version: DatasetVersion, steps_per_epoch: int
) -> TrainingParts:
    """Build model, optimizer and schedule under the strategy, and load the initial weights.

    Raises:
        ConfigError: the model cannot be built, or its weights cannot be loaded.
    """
    keras.utils.set_random_seed(config.data.seed % 2**32)
    task = kind_of(version, config.data.objects).task(version, config, OPERATIONS)
    spec = model_spec(config, version, task.num_outputs, strategy.num_replicas_in_sync)
    mixed = config.run.mixed_precision
    with strategy.scope():
        with precision(mixed):
            model = build_model(spec)
        loaded = load_initial(model, spec)
        frozen = freeze_layers(model, config.model.freeze)
        if loaded is not None:
            loaded.check_frozen([layer.name for layer in weighted_layers(model) if not layer.trainable])
        total = config.run.epochs * steps_per_epoch
        limited = limit_momentum(model, momentum_limit(steps_per_epoch, total))
        with precision(mixed):
            again = _rematerialized(config, model, strategy)
        stages = Stages.of(config, steps_per_epoch)
        is_free = (
            config.run.callbacks
            and config.optimizer.schedule == "constant"
            and not config.optimizer.rising_steps(config.scheduled_epochs * steps_per_epoch)
        )
        rate = config.optimizer.rate if is_free else TabulatedRates(stages.rates)  # callbacks set a number
        optimizer = make_optimizer(config.optimizer, rate, model, loss_scaling=mixed == "float16")
        head = _head(config, model)
        decay = config.optimizer.ema_decay
        averages = None if decay is None else WeightAverages(model, decay)
        schedule = PruningSchedule.of(config.optimizer.pruning, steps_per_epoch)
        pruning = None if schedule is None else MaskedPruning(schedule, model, strategy)
        totals = DeviceTotals()
    notes = tuple(str(change) for change in (loaded, frozen, limited, again) if change is not None)
    return TrainingParts(
        strategy=strategy,
        task=task,
        spec=spec,
        model=model,
        optimizer=optimizer,
        stages=stages,
        head=head,
        totals=totals,
        averages=averages,
        pruning=pruning,
        rematerialized=again,
        notes=notes,
    )


def _rematerialized(config: TrainConfig, model: Any, strategy: Any) -> Rematerialized | None:
    """Prepare the forward pass of ``run.rematerialize``; None: it is off."""
    if not config.run.rematerialize:
        return None
    if strategy.num_replicas_in_sync > 1 or config.run.jit_compile:
        raise ConfigError(
            "run.rematerialize holds on one device only, and without run.jit_compile",
            "turn it off, or set run.devices = 'one' and run.jit_compile = false",
        )
    return rematerialize(model)


def _head(config: TrainConfig, model: Any) -> Head | None:
    """Prepare the stage in which only the classifier learns, and leave the model as it is."""
    if not config.model.warm_head_epochs:
        return None
    alone, scaling = HeadAlone(model), config.run.mixed_precision == "float16"
    alone.begin()
    rate = config.optimizer.head_rate
    optimizer = make_optimizer(config.optimizer, rate, model, loss_scaling=scaling)
    alone.end()
    return Head(alone, optimizer)
