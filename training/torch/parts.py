"""The model of a run with everything that trains and evaluates it, built from the configuration."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.models import ModelSpec
from shardmill.training.models.changes import momentum_limit
from shardmill.training.run.framework import Head, StepTotals, model_spec
from shardmill.training.run.pruning import PruningSchedule
from shardmill.training.schedules import Stages
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tasks.task import Task
from shardmill.training.torch.group import TorchRanks
from shardmill.training.torch.models import build_model, load_weights
from shardmill.training.torch.models.layers import HeadAlone, freeze_modules, is_frozen, weighted_modules
from shardmill.training.torch.models.normalization import limit_momentum, synchronized
from shardmill.training.torch.models.rematerialization import rematerialize
from shardmill.training.torch.operations import OPERATIONS
from shardmill.training.torch.optimization import MaskedPruning, WeightAverages, make_optimizer, prepare_state
from shardmill.training.torch.state import ScaleState, TensorState, model_state, optimizer_state


class DeviceTotals:
    """``StepTotals`` in one tensor: a report fetches it once, a step fetches nothing."""

    def __init__(self, ranks: TorchRanks, device: Any) -> None:
        self._ranks = ranks
        # Loss, score, gradient norm, finite norms, those before the first that is not finite, norms that are
        # not, and losses of this rank that are not.
        self._sums = torch.zeros(7, dtype=torch.float64, device=device)

    def add(self, loss: Any, score: Any) -> None:
        """Add this rank's part of the loss, times the number of real examples, and the sum of its scores."""
        self._sums[0] += loss
        self._sums[1] += score
        self._sums[6] += ~torch.isfinite(loss)

    def add_norm(self, norm: Any) -> None:
        """Add the gradient norm of a step, which is the same on all ranks."""
        if self._ranks.is_first:
            finite = torch.isfinite(norm)
            self._sums[2] += norm
            self._sums[3] += finite
            self._sums[4] += finite & (self._sums[5] == 0)
            self._sums[5] += ~finite

    def take(self) -> StepTotals:
        """Return the sums over all ranks, and begin again at zero. It waits for the device."""
        own = self._sums.cpu().numpy()
        not_finite = round(own[6])
        loss, score, norm, finite, sound, *_ = self._ranks.total(own).tolist()
        self._sums.zero_()
        return StepTotals(loss, score, norm, round(finite), round(sound), not_finite)


MIXED = {"off": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """The objects that training, evaluation and export share.

    Attributes:
        ranks: the ranks that train together.
        device: the ``torch.device`` of this rank.
        task: loss and measures.
        spec: the parameters from which the model was built.
        model: the ``torch.nn.Module``.
        optimizer: the optimizer of its weights.
        stages: the learning rate of each step.
        head: the classifier, if it learns alone at first.
        scaler: scales the loss, if the run computes in float16.
        mixed: the type in which the model computes; None: float32.
        totals: the sums of the steps since the last report.
        averages: the moving averages of the weights; None: the weights themselves are evaluated.
        pruning: makes weights zero; None: all stay.
        notes: what was changed in the model, for the result.
    """

    ranks: TorchRanks
    device: Any
    task: Task
    spec: ModelSpec
    model: Any
    optimizer: Any
    stages: Stages
    head: Head | None
    scaler: Any
    mixed: Any
    totals: DeviceTotals
    averages: WeightAverages | None
    pruning: MaskedPruning | None = None
    notes: tuple[str, ...] = ()

    @property
    def state(self) -> list[TensorState]:
        """All arrays of a checkpoint. First those that are evaluated, in the order of the model's."""
        own = [*self.model_state, *optimizer_state(self.optimizer)]
        if self.head is not None:
            own += optimizer_state(self.head.optimizer, "head_optimizer")
        if self.pruning is not None:
            own += self.pruning.saved
        if self.scaler.is_enabled():
            own.append(ScaleState(self.scaler))
        if self.averages is None:
            return own
        return [*self.averages.evaluated, *own, *self.averages.saved]

    @property
    def model_state(self) -> list[TensorState]:
        """The arrays of the model."""
        return model_state(self.model)

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute in the type of ``run.mixed_precision`` while the block runs."""
        return in_type(self.device, self.mixed)

    def evaluated(self) -> AbstractContextManager[None]:
        """Let the model have the weights that are evaluated, kept as the best and exported."""
        return nullcontext() if self.averages is None else self.averages.in_model()


def in_type(device: Any, kind: Any) -> AbstractContextManager[Any]:
    """Compute in a type on a device while the block runs; None: float32."""
    if kind is None:
        return nullcontext()
    cast: AbstractContextManager[Any] = torch.autocast(device.type, kind)
    return cast


def build_parts(
    config: TrainConfig, version: DatasetVersion, steps_per_epoch: int, ranks: TorchRanks, device: Any
) -> TrainingParts:
    """Build model, optimizer and schedule, and load the initial weights.

    Raises:
        ConfigError: the model cannot be built, or its weights cannot be loaded.
    """
    task = kind_of(version, config.data.objects).task(version, config, OPERATIONS)
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
    schedule = PruningSchedule.of(config.optimizer.pruning, steps_per_epoch)
    decay = config.optimizer.ema_decay
    return TrainingParts(
        ranks=ranks,
        device=device,
        task=task,
        spec=spec,
        model=model,
        optimizer=optimizer,
        stages=Stages.of(config, steps_per_epoch),
        head=_head(config, model),
        scaler=torch.amp.GradScaler(device.type, enabled=config.run.mixed_precision == "float16"),
        mixed=MIXED[config.run.mixed_precision],
        totals=DeviceTotals(ranks, device),
        averages=None if decay is None else WeightAverages(model_state(model), decay),
        pruning=None if schedule is None else MaskedPruning(schedule, model),
        notes=tuple(str(note) for note in (loaded, frozen, limited, again) if note is not None),
    )


def _head(config: TrainConfig, model: Any) -> Head | None:
    """Prepare the stage in which only the classifier learns, and leave the model as it is."""
    if not config.model.warm_head_epochs:
        return None
    alone = HeadAlone(model)
    alone.begin()
    optimizer = make_optimizer(config.optimizer.model_copy(update={"first_layer_factor": 1.0}), model)
    prepare_state(optimizer)
    alone.end()
    return Head(alone, optimizer)
