"""The interface between a run and the framework that trains it. Each wing implements it in ``framework.py``.

``load(run.framework).start(config, place)`` of ``shardmill.training.frameworks`` returns the ``Framework`` of
this process. It builds the ``Model`` of the run, and opens its input; the session does everything else.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import GO_ON, RankLost
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.metrics.evaluation import Evaluation, Rows
from shardmill.training.models.spec import ModelSpec, pixels_of, samples_read
from shardmill.training.order import Order
from shardmill.training.ranks.peers import Peers
from shardmill.training.reading import RecordReader
from shardmill.training.reading.decode import Pixels
from shardmill.training.reading.opening import Opened
from shardmill.training.run.ending.source_check import Written
from shardmill.training.run.pruning import Pruning
from shardmill.training.run.sharing.division import Division
from shardmill.training.schedules import Stages
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tasks.task import Task

# Takes n evaluated examples: their ordinals int64 [n], their labels as the task has them, and ``losses``
# float32 [n] with the predictions of the task, each [n, ...].
Sink = Callable[[Ints, Any, Rows], None]
# Takes a step: (batch, step of the run, real examples of the global batch). Raises OutOfMemory.
Step = Callable[[Any, int, int], None]
_SAID_CHARACTERS = 300


class Framework(ABC):
    """A framework that is started in this process, on its devices, and knows the other ranks.

    Attributes:
        name: ``run.framework``.
        version: version of the framework.
        ranks: the ranks that train together.
        devices: the names of the devices that train.
        kind_of_device: the model of this process's device; devices of one name count as equally fast.
        num_local_replicas: the devices of this process.
    """

    name: ClassVar[str]
    version: str
    ranks: Peers
    devices: list[str]
    kind_of_device: str
    num_local_replicas: int = 1

    @abstractmethod
    def build(self, config: TrainConfig, version: DatasetVersion, steps_per_epoch: int) -> Model:
        """Build the model of a run, each time with the same random weights, and load its initial weights.

        Raises:
            ConfigError: the model cannot be built, or its weights cannot be loaded.
        """

    @abstractmethod
    def open_input(
        self, config: TrainConfig, reader: RecordReader, order: Order, division: Division
    ) -> Input:
        """Open the batches of the train split.

        Args:
            config: the configuration of the run.
            reader: the records of the split.
            order: the order of the run.
            division: the rows of each rank.

        Raises:
            ConfigError: the settings contradict each other, or need more memory than they allow.
        """

    @abstractmethod
    def open_trained(self, config: TrainConfig, version: DatasetVersion, run_dir: Path) -> Evaluator:
        """Return what evaluates the best model of a finished run as training did.

        Raises:
            CorruptDataError: the weights are missing or damaged.
        """

    @abstractmethod
    def lone_step(self, spec: ModelSpec, config: TrainConfig, rows: int) -> Callable[[], object]:
        """Return a function that computes a gradient on one device, for no other rank, and waits for it."""

    @abstractmethod
    def peak_device_bytes(self) -> dict[str, int]:
        """Return the most memory of each GPU so far (bytes), by name; empty if the CPU trains."""

    @abstractmethod
    def copy_to_device(self, images: Pixels) -> None:
        """Copy images to the memory of the device that trains, and wait for it."""

    @abstractmethod
    def start_profile(self, logs: Path) -> None:
        """Begin to record what the framework does, for a file below the folder of the logs."""

    @abstractmethod
    def stop_profile(self) -> str:
        """Write what was recorded, and return where."""

    def errors_of_peers(self) -> AbstractContextManager[None]:
        """Raise RankLost in the block if another rank ended or does not answer."""
        return nullcontext()

    def connected(self, config: TrainConfig) -> AbstractContextManager[Callable[[], float | None] | None]:
        """Connect the ranks of one machine, if that is faster than through the framework.

        The block gets a function that returns how long this rank has waited for others (seconds), if known.
        """
        return nullcontext()


class Input(ABC):
    """The batches of the train split of one rank.

    Attributes:
        opened: the examples, and how they are read.
        rows: the rows of each global batch that this process reads.
    """

    opened: Opened
    rows: slice

    @abstractmethod
    def steps(self, start: int, stop: int) -> Iterator[Any]:
        """Yield the batches of the steps ``start`` to ``stop`` of the run.

        Raises:
            CorruptDataError: a record is damaged; names the record and its shard.
        """


class Evaluator(ABC):
    """Evaluates one model on splits.

    Attributes:
        task: what the model has learned.
    """

    task: Task

    @abstractmethod
    def predicted(self, reader: RecordReader, records: Ints | None) -> Iterator[tuple[Ints, Any, Rows]]:
        """Yield the real examples of all ranks, batch by batch: the three arguments of a ``Sink``.

        Args:
            reader: the records of the split, in stored order.
            records: int64 [M], ordinals of the only records to evaluate, ascending; None: all.
        """

    def evaluate(
        self,
        reader: RecordReader,
        on_batch: Callable[[int], None],
        sink: Sink | None = None,
        records: Ints | None = None,
    ) -> Evaluation:
        """Evaluate every record of the reader's split once, in stored order.

        Args:
            reader: the records of the split.
            on_batch: called with the number of evaluated examples.
            sink: takes the predictions of each batch.
            records: int64 [M], ordinals of the only records to evaluate, ascending; None: all.

        Raises:
            CorruptDataError: a record is damaged.
        """
        tally, done = self.task.tally(), 0
        for ordinals, labels, rows in self.predicted(reader, records):
            tally.add(labels, rows)
            if sink is not None:
                sink(ordinals, labels, rows)
            done += len(ordinals)
            on_batch(done)
        return tally.evaluation()


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Sums over the steps since the last report, over all replicas.

    Attributes:
        loss: of the mean losses of the steps, each times the number of its real examples.
        score: mean of the scores of the task.
        gradient_norm: mean of the gradient norms; not finite if one of them is not.
        num_finite: the steps whose gradient norm is finite.
        num_sound: the steps before the first one whose gradient norm is not finite.
        own_not_finite: the losses of this process alone that are not finite; counted if ``loss`` is not.
    """

    loss: float
    score: float
    gradient_norm: float
    num_finite: int
    num_sound: int
    own_not_finite: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """The first examples of a batch as the model sees them, for people.

    Attributes:
        images: [n, S, S, C] of the type of the data set.
        labels: as the task has them.
    """

    images: Any
    labels: Any


class Callbacks:
    """Acts at some points of a run. This one does nothing.

    Attributes:
        stop_asked: the run shall end after this epoch.
    """

    stop_asked = False

    def train_begins(self) -> None:
        """Training begins, or goes on after an interruption."""

    def train_ends(self) -> None:
        """Training has reached its end."""

    def epoch_begins(self, epoch: int, *, is_resumed: bool) -> None:
        """Epoch ``epoch`` (from 0) begins, or goes on."""

    def epoch_ends(self, epoch: int, row: Mapping[str, Any]) -> None:
        """Epoch ``epoch`` has ended with the figures of ``row``."""

    def step_begins(self, step: int) -> None:
        """Step ``step`` of the epoch begins."""

    def step_ends(self, step: int, figures: Mapping[str, float]) -> None:
        """Step ``step`` of the epoch has been started on the device."""


class Model(ABC):
    """The model of a run with everything that trains, evaluates and exports it.

    Attributes:
        spec: the parameters from which it was built.
        task: what it learns.
        stages: whether the classifier learns alone at first, and the learning rate of each step.
        step: takes a training step, as ``begin_stage`` has prepared it.
        evaluator: evaluates it.
        changes: what was changed in the model before training, for the result.
        pruning: makes its smallest weights zero; None: all stay.
    """

    spec: ModelSpec
    task: Task
    stages: Stages
    step: Step
    evaluator: Evaluator
    changes: tuple[str, ...]
    pruning: Pruning | None = None

    @property
    def notes(self) -> list[str]:
        """What was changed in the model, for the result."""
        if self.pruning is None:
            return [*self.changes]
        zeros = self.pruning.share_of_zeros()
        return [*self.changes, f"pruned: {zeros:.1%} of the weights in pruned layers are zero"]

    @abstractmethod
    def begin_stage(self, config: TrainConfig, rows: int, *, head_alone: bool) -> None:
        """Prepare the step of a stage, and forget the one before.

        Args:
            config: the configuration of the run.
            rows: the rows of this process in a step.
            head_alone: only the classifier learns.

        Raises:
            ConfigError: the rows cannot be taken as the settings ask.
        """

    def forget_step(self) -> None:
        """Let nothing hold the step of the last stage and its exchange of gradients, before the next one."""
        vars(self).pop("step", None)
        gc.collect()

    @abstractmethod
    def take_totals(self) -> StepTotals:
        """Return the sums of the steps since the last call. It waits for the device."""

    @abstractmethod
    def last_rate(self) -> float:
        """Return the learning rate that the optimizer took in the last step."""

    @property
    @abstractmethod
    def state(self) -> list[Any]:
        """All arrays of a checkpoint: with ``path``, ``shape``, ``numpy()`` and ``assign``.

        First those that are evaluated, in the order of ``model_state``.
        """

    @property
    @abstractmethod
    def model_state(self) -> list[Any]:
        """The arrays of the model."""

    def assigning(self) -> AbstractContextManager[Any]:
        """Let arrays be assigned while the block runs."""
        return nullcontext()

    @abstractmethod
    def evaluated(self) -> AbstractContextManager[None]:
        """Let the model have the weights that are evaluated, kept as the best and exported."""

    @abstractmethod
    def consumed(self, batch: Any, rows: slice, num_rows: int) -> Ints:
        """Return the ordinals of the real examples of all ranks, in the order of the global batch.

        Args:
            batch: of this rank.
            rows: its place in the global batch.
            num_rows: the size of the global batch.
        """

    @abstractmethod
    def shown(self, batch: Any, most: int) -> Shown:
        """Return the first examples of a batch after all augmentation."""

    @abstractmethod
    def export(self, config: TrainConfig, readers: Mapping[str, RecordReader], run_dir: Path) -> Written:
        """Write the weights, and the model in all its forms, to the folder of the run."""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """The number of its weights."""

    def callbacks(self, config: TrainConfig, order: Order, *, has_validation: bool) -> Callbacks:
        """Make the callbacks of ``run.callbacks``.

        Raises:
            ConfigError: one cannot work.
        """
        return Callbacks()


@dataclass(frozen=True, slots=True)
class Head:
    """The classifier in the stage in which only it learns.

    Attributes:
        alone: freezes the other layers, with ``begin()`` and ``end()``.
        optimizer: of its weights.
    """

    alone: Any
    optimizer: Any


def rank_lost(rank: int, said: str) -> RankLost:
    """Return the error of a rank whose framework says that another rank is gone.

    Args:
        rank: the number of this rank.
        said: what the framework says, of which some words are kept.
    """
    return RankLost(
        f"rank {rank} lost another rank: {said[:_SAID_CHARACTERS]}",
        f"all ranks must be started again; {GO_ON}",
    )


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
    samples = samples_read(version.manifest, config.data.image_channels)
    use_statistics = config.data.normalization == "dataset"
    return ModelSpec(
        name=config.model.name,
        num_classes=num_outputs,
        image_size=image_size_of(config),
        image_channels=samples.channels,
        dtype=samples.dtype,
        dropout=config.model.dropout,
        synchronized=config.model.synchronized_batchnorm and num_replicas > 1,
        weights=config.model.weights,
        partial_weights=config.model.partial_weights,
        seed=config.data.seed,
        pixels=pixels_of(version.manifest, samples.channels) if use_statistics else None,
        output=kind_of(version, config.data.objects).output,
        fit=config.data.fit or "crop",
    )
