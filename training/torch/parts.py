"""The model of a run with everything that trains and evaluates it, built from the configuration."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.models import ModelSpec
from shardmill.training.models.changes import momentum_limit
from shardmill.training.models.spec import pixels_of
from shardmill.training.run.optimization.schedules import Horizon
from shardmill.training.run.optimization.stages import HeadStage, Stages
from shardmill.training.torch.models import build_model, load_weights
from shardmill.training.torch.models.batch_normalization import limit_momentum, synchronized
from shardmill.training.torch.models.layers import HeadAlone, freeze_modules, is_frozen, weighted_modules
from shardmill.training.torch.models.rematerialization import rematerialize
from shardmill.training.torch.optimization.averaging import WeightAverages
from shardmill.training.torch.optimization.optimizers import RateTable, make_optimizer, prepare_state
from shardmill.training.torch.ranks.group import TorchRanks
from shardmill.training.torch.state import Saved, ScaleState, TensorState, model_state, optimizer_state
from shardmill.training.torch.tasks.of_dataset import task_of
from shardmill.training.torch.tasks.task import Task
from shardmill.training.torch.totals import DeviceTotals

_MIXED = {"off": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """The objects that the loop, the evaluation and the export share.

    Attributes:
        ranks: the ranks that train together.
        device: the ``torch.device`` of this rank.
        task: loss and measures.
        spec: the parameters from which the model was built.
        model: the ``torch.nn.Module``.
        optimizer: the optimizer of its weights.
        stages: whether the classifier learns alone at first, and the learning rate of each step.
        scaler: scales the loss, if the run computes in float16.
        mixed: the type in which the model computes; None: float32.
        totals: the sums of the steps since the last report.
        averages: the moving averages of the weights; None: the weights themselves are evaluated.
        notes: what was changed in the model, for the result.
    """

    ranks: TorchRanks
    device: Any
    task: Task
    spec: ModelSpec
    model: Any
    optimizer: Any
    stages: Stages
    scaler: Any
    mixed: Any
    totals: DeviceTotals
    averages: WeightAverages | None
    notes: tuple[str, ...] = ()
    pruning: None = None  # the settings refuse it

    def last_rate(self, epoch: int) -> float:
        """Return the learning rate that the optimizer took in the last step, a step of ``epoch`` (from 0)."""
        head = self.stages.head_of(epoch)
        group = (self.optimizer if head is None else head.optimizer).param_groups[0]
        return float(group["lr"] / group["rate_factor"])

    @property
    def state(self) -> list[Saved]:
        """All arrays of a checkpoint. First those that are evaluated, in the order of the model's."""
        own: list[Saved] = [*self.model_state, *optimizer_state(self.optimizer)]
        if self.stages.head is not None:
            own += optimizer_state(self.stages.head.optimizer, "head_optimizer")
        if self.scaler.is_enabled():
            own.append(ScaleState(self.scaler))
        if self.averages is None:
            return own
        return [*self.averages.evaluated, *own, *self.averages.saved]

    @property
    def model_state(self) -> list[TensorState]:
        """The arrays of the model."""
        return model_state(self.model)

    def restoring(self) -> AbstractContextManager[None]:
        """Let arrays be assigned while the block runs: they can be at any time."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute in the type of ``run.mixed_precision`` while the block runs."""
        if self.mixed is None:
            return nullcontext()
        cast: AbstractContextManager[Any] = torch.autocast(self.device.type, self.mixed)
        return cast

    def evaluated(self) -> AbstractContextManager[None]:
        """Let the model have the weights that are evaluated, kept as the best and exported."""
        return nullcontext() if self.averages is None else self.averages.in_model()


def model_spec(config: TrainConfig, version: DatasetVersion, num_outputs: int, num_ranks: int) -> ModelSpec:
    """Return the parameters from which the model of a run is built."""
    channels = config.data.image_channels
    use_statistics = config.data.normalization == "dataset"
    return ModelSpec(
        name=config.model.name,
        num_classes=num_outputs,
        image_size=image_size_of(config),
        image_channels=channels,
        dropout=config.model.dropout,
        synchronized=config.model.synchronized_batchnorm and num_ranks > 1,
        weights=config.model.weights,
        partial_weights=config.model.partial_weights,
        seed=config.data.seed,
        pixels=pixels_of(version.manifest, channels) if use_statistics else None,
    )


def build_parts(
    config: TrainConfig, version: DatasetVersion, steps_per_epoch: int, ranks: TorchRanks, device: Any
) -> TrainingParts:
    """Build model, optimizer and schedule, and load the initial weights.

    Raises:
        ConfigError: the model cannot be built, or its weights cannot be loaded.
    """
    task = task_of(version, config)
    spec = model_spec(config, version, task.num_outputs, ranks.num_ranks)
    torch.manual_seed(config.data.seed)
    model = build_model(spec)
    loaded = None if spec.weights is None else load_weights(model, spec.weights, partial=spec.partial_weights)
    frozen = freeze_modules(model, config.model.freeze)
    if loaded is not None:
        names = [name for name, module in weighted_modules(model) if is_frozen(module)]
        loaded.check_frozen([*names, *(name.removeprefix("backbone.") for name in names)])
    total = config.run.epochs * steps_per_epoch
    limited = limit_momentum(model, momentum_limit(steps_per_epoch, total))
    if spec.synchronized:
        model = synchronized(model, device)
    model = model.to(device, memory_format=torch.channels_last)
    again = rematerialize(model) if config.run.rematerialize else None
    optimizer = make_optimizer(config.optimizer, model)
    prepare_state(optimizer)
    head = _head_stage(config, model, steps_per_epoch)
    decay = config.optimizer.ema_decay
    scheduled = config.scheduled_epochs * steps_per_epoch
    horizon = Horizon(scheduled, steps_per_epoch, config.optimizer.rising_steps(scheduled))
    return TrainingParts(
        ranks=ranks,
        device=device,
        task=task,
        spec=spec,
        model=model,
        optimizer=optimizer,
        stages=Stages(head, RateTable(config.optimizer, horizon)),
        scaler=torch.amp.GradScaler(device.type, enabled=config.run.mixed_precision == "float16"),
        mixed=_MIXED[config.run.mixed_precision],
        totals=DeviceTotals(ranks, device),
        averages=None if decay is None else WeightAverages(model_state(model), decay),
        notes=tuple(str(note) for note in (loaded, frozen, limited, again) if note is not None),
    )


def _head_stage(config: TrainConfig, model: Any, steps_per_epoch: int) -> HeadStage | None:
    """Prepare the stage in which only the classifier learns, and leave the model as it is."""
    epochs = config.model.warm_head_epochs
    if not epochs:
        return None
    alone = HeadAlone(model)
    alone.begin()
    optimizer = make_optimizer(config.optimizer.model_copy(update={"first_layer_factor": 1.0}), model)
    prepare_state(optimizer)
    alone.end()
    return HeadStage(epochs, epochs * steps_per_epoch, config.optimizer.head_rate, optimizer, alone)
