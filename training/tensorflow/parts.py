"""The model of a run with everything that trains and evaluates it, built from the configuration."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.models import ModelSpec
from shardmill.training.models.changes import momentum_limit
from shardmill.training.models.spec import pixels_of
from shardmill.training.run.optimization.schedules import Horizon
from shardmill.training.run.optimization.stages import HeadStage, Stages
from shardmill.training.tasks.task import Task
from shardmill.training.tasks.traits import traits_of
from shardmill.training.tensorflow.evaluating.evaluation import EvaluationSize, Evaluator
from shardmill.training.tensorflow.memory.rematerialization import Rematerialized, rematerialize
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.models.layers import (
    HeadAlone,
    freeze_layers,
    limit_momentum,
    weighted_layers,
)
from shardmill.training.tensorflow.models.weights import load_initial
from shardmill.training.tensorflow.optimization.averaging import WeightAverages
from shardmill.training.tensorflow.optimization.optimizers import TabulatedRates, last_rate, make_optimizer
from shardmill.training.tensorflow.optimization.precision import precision
from shardmill.training.tensorflow.optimization.pruning import Pruning
from shardmill.training.tensorflow.tasks.of_dataset import task_of
from shardmill.training.tensorflow.totals import DeviceTotals


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """The objects that the loop, the evaluation and the export share.

    Attributes:
        strategy: the ``tf.distribute.Strategy``.
        task: labels, loss and measures.
        spec: the parameters from which the model was built.
        model: the Keras model.
        optimizer: the Keras optimizer.
        stages: whether the classifier learns alone at first, and the learning rate of each step.
        evaluator: evaluates the model on a split.
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
    evaluator: Evaluator
    totals: DeviceTotals
    averages: WeightAverages | None
    pruning: Pruning | None = None
    rematerialized: Rematerialized | None = None
    notes: tuple[str, ...] = ()

    def outputs(self, images: Any) -> Any:
        """Return the outputs of the model in training."""
        if self.rematerialized is not None:
            return self.rematerialized.forward(images)
        return self.model(images, training=True)

    def last_rate(self, epoch: int) -> float:
        """Return the learning rate that the optimizer took in the last step, a step of ``epoch`` (from 0)."""
        head = self.stages.head_of(epoch)
        optimizer = self.optimizer if head is None else head.optimizer
        return last_rate(optimizer, self.stages.rates)

    @property
    def state(self) -> list[Any]:
        """All variables of a checkpoint. First those that are evaluated, in the order of the model's."""
        own = [*self.model.variables, *self.optimizer.variables]
        if self.stages.head is not None:
            own += self.stages.head.optimizer.variables
        if self.pruning is not None:
            own += self.pruning.variables
        if self.averages is None:
            return own
        return [*self.averages.evaluated, *own, *self.averages.variables]

    @property
    def model_state(self) -> list[Any]:
        """The variables of the model."""
        return list(self.model.variables)

    def restoring(self) -> AbstractContextManager[Any]:
        """Let variables be assigned while the block runs."""
        scope: AbstractContextManager[Any] = self.strategy.scope()
        return scope

    def evaluated(self) -> AbstractContextManager[None]:
        """Let the model have the weights that are evaluated, kept as the best and exported."""
        if self.averages is None:
            return nullcontext()
        return self.averages.in_model(self.strategy)


def model_spec(
    config: TrainConfig, version: DatasetVersion, num_outputs: int, num_replicas: int
) -> ModelSpec:
    """Return the parameters from which the model of a run is built.

    Args:
        config: the configuration of the run.
        version: the dataset version.
        num_outputs: ``Task.num_outputs``.
        num_replicas: the replicas that train together.
    """
    return ModelSpec(
        name=config.model.name,
        num_classes=num_outputs,
        image_size=image_size_of(config),
        image_channels=config.data.image_channels,
        dropout=config.model.dropout,
        synchronized=config.model.synchronized_batchnorm and num_replicas > 1,
        weights=config.model.weights,
        partial_weights=config.model.partial_weights,
        seed=config.data.seed,
        pixels=pixels_of(version.manifest, config.data.image_channels)
        if config.data.normalization == "dataset"
        else None,
        output=traits_of(version).output,
        fit=config.data.fit or "crop",
    )


def build_parts(
    config: TrainConfig, strategy: Any, version: DatasetVersion, steps_per_epoch: int
) -> TrainingParts:
    """Build model, optimizer and schedule under the strategy, and load the initial weights.

    Raises:
        ConfigError: the model cannot be built, or its weights cannot be loaded.
    """
    task = task_of(version, config)
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
        scheduled = config.scheduled_epochs * steps_per_epoch
        horizon = Horizon(scheduled, steps_per_epoch, config.optimizer.rising_steps(scheduled))
        schedule = TabulatedRates(config.optimizer, horizon)
        is_free = (
            config.run.callbacks and config.optimizer.schedule == "constant" and not horizon.warmup_steps
        )
        rate = config.optimizer.rate if is_free else schedule  # callbacks may set a number
        optimizer = make_optimizer(config.optimizer, rate, model, loss_scaling=mixed == "float16")
        head = _head_stage(config, model, steps_per_epoch)
        decay = config.optimizer.ema_decay
        averages = None if decay is None else WeightAverages(model, decay)
        rules = config.optimizer.pruning
        pruning = Pruning(rules, model, steps_per_epoch, strategy) if rules.final_sparsity else None
        totals = DeviceTotals()
    size = EvaluationSize.of(config)
    evaluator = Evaluator(strategy, model, task, size)
    notes = tuple(str(change) for change in (loaded, frozen, limited, again) if change is not None)
    return TrainingParts(
        strategy=strategy,
        task=task,
        spec=spec,
        model=model,
        optimizer=optimizer,
        stages=Stages(head, schedule),
        evaluator=evaluator,
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


def _head_stage(config: TrainConfig, model: Any, steps_per_epoch: int) -> HeadStage | None:
    """Prepare the stage in which only the classifier learns, and leave the model as it is."""
    epochs, rate = config.model.warm_head_epochs, config.optimizer.head_rate
    if not epochs:
        return None
    alone, scaling = HeadAlone(model), config.run.mixed_precision == "float16"
    alone.begin()
    optimizer = make_optimizer(config.optimizer, rate, model, loss_scaling=scaling)
    alone.end()
    return HeadStage(epochs, epochs * steps_per_epoch, rate, optimizer, alone)
