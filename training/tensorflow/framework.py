"""TensorFlow as a framework of ``shardmill.training.run``: its devices and ranks, and a model of Keras.

Not ``Model.fit``, which fails under multi-worker strategies and cannot resume exactly: the loop calls the
training step itself, the same for any number of replicas.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.processes.process import num_cpus
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.export.model_input import ModelInput
from shardmill.training.models.spec import ModelSpec
from shardmill.training.order import Order
from shardmill.training.ranks.cluster import Cluster, Meeting
from shardmill.training.ranks.local_sums import MOST_BYTES, Patience, PeerLost, connected
from shardmill.training.reading import RecordReader
from shardmill.training.reading.decode import Pixels
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.opening import Opened, open_for_run
from shardmill.training.run.ending.source_check import Written, checked_on
from shardmill.training.run.framework import (
    Callbacks,
    Evaluator,
    Framework,
    Input,
    Model,
    Shown,
    StepTotals,
    model_spec,
    rank_lost,
)
from shardmill.training.run.sharing.division import Division
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tensorflow import starting
from shardmill.training.tensorflow.augment_batches import BatchAugment
from shardmill.training.tensorflow.callbacks import AttachedCallbacks
from shardmill.training.tensorflow.data.opening import open_pipeline
from shardmill.training.tensorflow.data.pipeline import Pipeline, reraise
from shardmill.training.tensorflow.evaluation import KerasEvaluator
from shardmill.training.tensorflow.export.forms import Exported, FormsRequest, write_forms
from shardmill.training.tensorflow.export.saved_model import export, open_served
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.models.layers import freeze_layers
from shardmill.training.tensorflow.models.normalization import sum_by
from shardmill.training.tensorflow.operations import OPERATIONS
from shardmill.training.tensorflow.optimization.optimizers import last_rate, precision
from shardmill.training.tensorflow.parts import TrainingParts, build_parts
from shardmill.training.tensorflow.ranks.group import group_of
from shardmill.training.tensorflow.ranks.strategy import (
    Communication,
    distribute,
    gather,
    make_rank_strategy,
    make_strategy,
    num_local_replicas,
)
from shardmill.training.tensorflow.step import TrainStep

WEIGHTS_FILE = "model.weights.h5"
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


def start(config: TrainConfig, place: Cluster | Meeting | None = None) -> TensorFlow:
    """Start TensorFlow on the devices of a run, and find the other ranks. It waits for them.

    Args:
        config: the configuration of the run.
        place: the place of this process among the ranks; None: it trains alone.

    Raises:
        ConfigError: there are fewer devices than the run asks for.
        RankLost: another rank ended or does not answer.
    """
    cluster = place if isinstance(place, Cluster) else None
    starting.start(
        devices=config.run.devices,
        seed=config.data.seed,
        deterministic=config.run.deterministic,
        in_cluster=cluster is not None,
        gpu_memory_limit_bytes=config.run.gpu_memory_limit_bytes,
    )
    if cluster is None:
        return TensorFlow(make_strategy(config.run.devices))
    settings = config.ranks
    times = settings.peer_timeout_seconds, settings.start_timeout_seconds
    with _errors_of_peers(cluster):
        return TensorFlow(make_rank_strategy(cluster, Communication(settings.collectives, *times)), cluster)


class TensorFlow(Framework):
    """TensorFlow in this process.

    Attributes:
        strategy: the ``tf.distribute.Strategy``, with all devices of this process and its ranks.
    """

    name = "tensorflow"
    version = tf.__version__

    def __init__(self, strategy: Any, cluster: Cluster | None = None) -> None:
        """Train under a strategy; ``cluster``: the ranks, None: this process trains alone."""
        self.strategy = strategy
        self.ranks = group_of(strategy)
        self.devices = list(strategy.extended.worker_devices)
        self.kind_of_device = _kind_of_device()
        self.num_local_replicas = num_local_replicas(strategy)
        self._cluster = cluster

    def build(self, config: TrainConfig, version: DatasetVersion, steps_per_epoch: int) -> KerasModel:
        """Build the model of a run; see ``Framework``."""
        return KerasModel(self, build_parts(config, self.strategy, version, steps_per_epoch), config)

    def open_input(
        self, config: TrainConfig, reader: RecordReader, order: Order, division: Division
    ) -> KerasInput:
        """Open the batches of the train split; see ``Framework``."""
        version = reader.split.version
        objects = kind_of(version, config.data.objects).task(version, config, OPERATIONS).objects(reader)
        own = division.slice_of(self.ranks.rank) if self.ranks.num_ranks > 1 else None
        opened = open_for_run(config, reader, order, objects, own)
        return KerasInput(self.strategy, opened, open_pipeline(opened, threads=self.ranks.threads))

    def open_trained(self, config: TrainConfig, version: DatasetVersion, run_dir: Path) -> KerasEvaluator:
        """Build the model of a run again, and load its weights; see ``Framework``."""
        task = kind_of(version, config.data.objects).task(version, config, OPERATIONS)
        spec = replace(model_spec(config, version, task.num_outputs, 1), weights=None)
        weights = run_dir / WEIGHTS_FILE
        with self.strategy.scope():
            with precision(config.run.mixed_precision):
                model = build_model(spec)
            try:
                model.load_weights(weights)
            except (OSError, ValueError) as error:
                raise CorruptDataError(
                    f"the weights {weights} cannot be loaded: {error}", "train again with run.fresh=true"
                ) from error
        return KerasEvaluator(self.strategy, model, task, ExampleSpec.of_settings(config).evaluated)

    def lone_step(self, spec: ModelSpec, config: TrainConfig, rows: int) -> Callable[[], float]:
        """Return a forward and backward pass on one device of this process, without an update."""
        with precision(config.run.mixed_precision):
            model = build_model(replace(spec, synchronized=False, weights=None))
        freeze_layers(model, config.model.freeze)
        images = tf.zeros([rows, *spec.image_shape], spec.dtype)

        def step() -> Any:
            with tf.GradientTape() as tape:
                outputs = tf.nest.flatten(model(images, training=True))
                # Any loss will do: the work does not depend on it.
                loss = tf.add_n([tf.reduce_sum(tf.cast(output, tf.float32)) for output in outputs])
            gradients = tape.gradient(loss, model.trainable_variables)
            return tf.linalg.global_norm([gradient for gradient in gradients if gradient is not None])

        compiled = tf.function(step, autograph=False)
        return lambda: float(compiled())  # the number waits for the device

    def peak_device_bytes(self) -> dict[str, int]:
        """Return the most memory of each GPU so far, {"GPU:0": ...}; see ``Framework``."""
        return peak_device_bytes()

    def copy_to_device(self, images: Pixels) -> None:
        """Copy images to the first device; reading one value back waits for the whole copy."""
        with tf.device(self.devices[0]):
            float(tf.identity(tf.constant(images))[-1, -1, -1, -1])

    def start_profile(self, logs: Path) -> None:
        """Begin to record for ``plugins/profile`` in the folder of the logs."""
        self._profiled = logs
        tf.profiler.experimental.start(str(logs))

    def stop_profile(self) -> str:
        """Write what was recorded, and return the folder."""
        tf.profiler.experimental.stop()
        return f"{self._profiled}/plugins/profile"

    def errors_of_peers(self) -> AbstractContextManager[None]:
        """Raise RankLost in the block if another rank ended or does not answer."""
        return _errors_of_peers(self._cluster)

    @contextmanager
    def connected(self, config: TrainConfig) -> Iterator[Callable[[], float | None] | None]:
        """Add up the moments of batch normalisation through sockets, if all ranks are CPUs of one machine.

        GPUs, and ranks of several machines, add them up with their gradients' collectives.
        """
        if self._cluster is None or not self._cluster.is_on_one_machine:
            yield None
            return
        own = self.num_local_replicas == 1 and "CPU" in self.devices[0]
        if not all(self.ranks.all_values(own)):
            yield None
            return
        patience = Patience(config.ranks.peer_timeout_seconds, config.ranks.start_timeout_seconds)
        with connected(self.ranks, patience) as sums, sum_by(self.strategy, sums.total, MOST_BYTES):
            yield lambda: sums.waited_seconds


class KerasInput(Input):
    """The batches of a ``tf.data`` pipeline, spread over the replicas of this process."""

    def __init__(self, strategy: Any, opened: Opened, pipeline: Pipeline) -> None:
        self._strategy, self._pipeline = strategy, pipeline
        self.opened, self.rows = opened, pipeline.rows

    def steps(self, start: int, stop: int) -> Iterator[Any]:
        """Yield the batches of steps: a dict with a value of each replica for each column."""
        own = self._pipeline
        batches = reraise([own], lambda: iter(distribute(self._strategy, own, start, stop)))
        while True:
            yield reraise([own], lambda: next(batches))


class KerasModel(Model):
    """A model of Keras with everything that trains, evaluates and exports it.

    Attributes:
        parts: model, optimizer and what else trains it.
    """

    def __init__(self, framework: TensorFlow, parts: TrainingParts, config: TrainConfig) -> None:
        self.parts = parts
        self.spec, self.task, self.stages = parts.spec, parts.task, parts.stages
        self.changes, self.pruning = parts.notes, parts.pruning
        self._framework = framework
        self._augment = config.augment
        self._callbacks: AttachedCallbacks | None = None
        self._optimizer = parts.optimizer
        self.evaluator: Evaluator = KerasEvaluator(
            parts.strategy, parts.model, parts.task, ExampleSpec.of_settings(config).evaluated
        )

    def begin_stage(self, config: TrainConfig, rows: int, *, head_alone: bool) -> None:
        """Prepare the step of a stage, whose first call compiles it; see ``Model``."""
        parts, head = self.parts, self.parts.head
        if head is not None:
            (head.alone.begin if head_alone else head.alone.end)()
        rows //= self._framework.num_local_replicas
        self.step = step = TrainStep(config, parts, rows, head_alone=head_alone)
        self._optimizer = step.optimizer
        if self._callbacks is not None:
            self._callbacks.use(step.optimizer)

    def take_totals(self) -> StepTotals:
        """Return the sums of the steps since the last call. It waits for the device."""
        return self.parts.totals.take()

    def last_rate(self) -> float:
        """Return the learning rate that the optimizer took in the last step."""
        return last_rate(self._optimizer, self.stages.rates)

    @property
    def state(self) -> list[Any]:
        """All variables of a checkpoint; see ``Model``."""
        return self.parts.state

    @property
    def model_state(self) -> list[Any]:
        """The variables of the model."""
        return self.parts.model_state

    def assigning(self) -> AbstractContextManager[Any]:
        """Let variables be assigned while the block runs."""
        scope: AbstractContextManager[Any] = self.parts.strategy.scope()
        return scope

    def evaluated(self) -> AbstractContextManager[None]:
        """Let the model have the weights that are evaluated, kept as the best and exported."""
        return self.parts.evaluated()

    def consumed(self, batch: Any, rows: slice, num_rows: int) -> Ints:
        """Return the ordinals of the real examples of all ranks, in the order of the global batch."""
        of_ranks = partial(gather, self.parts.strategy, own=rows, num_rows=num_rows)
        found: Ints = of_ranks(batch["ordinals"])[of_ranks(batch["weights"]) > 0]
        return found

    def shown(self, batch: Any, most: int) -> Shown:
        """Return the first examples of a batch after augmentation; of several replicas the first one's."""
        local = self.parts.strategy.experimental_local_results
        rows = tf.nest.map_structure(lambda part: local(part)[0][:most], dict(batch))
        images = BatchAugment(self._augment)(rows["images"], rows.get("parameters", {}))
        return Shown(np.asarray(images), tf.nest.map_structure(np.asarray, rows["labels"]))

    def export(self, config: TrainConfig, readers: Mapping[str, RecordReader], run_dir: Path) -> Written:
        """Write the SavedModel, the weights and the other forms to the folder of the run.

        The forms are compared with the model on the test split.
        """
        train, spec, task = readers["train"], self.spec, self.parts.task
        given = ModelInput.of(train, ExampleSpec.of_settings(config))
        # A copy that belongs to no strategy. Its initial weights are overwritten anyway.
        plain = build_model(replace(spec, synchronized=False, weights=None))
        plain.set_weights(self.parts.model.get_weights())
        plain.save_weights(run_dir / WEIGHTS_FILE)
        exported = Exported(plain, task, train.split.version.manifest.label_names, given)
        export(exported, run_dir / "export")
        given.write(run_dir)
        forms = write_forms(exported, FormsRequest(config.export, train, checked_on(readers)), run_dir)
        # Of files the SavedModel gives places in pictures, and the model in its input.
        measure = None if task.kind.finds_places and task.kind.output != "pixels" else task.form_measure()
        name = "" if measure is None else measure.output_name
        served = partial(open_served, run_dir / "export", given, name)
        return Written(forms, given, exported.output, served, measure)

    @property
    def num_parameters(self) -> int:
        """The number of its weights."""
        return int(self.parts.model.count_params())

    def callbacks(self, config: TrainConfig, order: Order, *, has_validation: bool) -> Callbacks:
        """Make the callbacks of Keras that ``run.callbacks`` names; see ``Model``."""
        names = self.task.tally().evaluation().figures() if has_validation else ()
        figures = {"loss", self.task.score_name, *(f"val_{name}" for name in names)}
        run, ranks = config.run, self._framework.ranks
        self._callbacks = AttachedCallbacks(
            run.callbacks, self.parts, run.epochs, order.steps_per_epoch, figures, ranks
        )
        return self._callbacks


def peak_device_bytes() -> dict[str, int]:
    """Return the most memory that TensorFlow has used of each GPU so far (bytes): {"GPU:0": ...}.

    Empty without a GPU: TensorFlow does not count the memory of CPUs.
    """
    # Of several ranks, names begin with the job and the number of the rank.
    own = [device.name.rpartition("device:")[2] for device in tf.config.list_logical_devices("GPU")]
    return {name: int(tf.config.experimental.get_memory_info(name)["peak"]) for name in sorted(set(own))}


def _kind_of_device() -> str:
    """Return the model of this process's GPU, with their number if there are several, or its processors."""
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        threads = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
        return f"CPU, {threads or num_cpus()} threads"
    details = tf.config.experimental.get_device_details(gpus[0])
    name = str(details.get("device_name", "GPU"))
    return name if len(gpus) == 1 else f"{len(gpus)} x {name}"


@contextmanager
def _errors_of_peers(cluster: Cluster | None) -> Iterator[None]:
    try:
        yield
    except (*_LOST, tf.errors.UnknownError) as error:
        # An error of Python inside a graph has no type of its own there.
        if cluster is None or not (isinstance(error, _LOST) or PeerLost.__name__ in str(error)):
            raise
        said = str(error.message or error).strip().splitlines()
        raise rank_lost(cluster.rank, (said or [""])[0]) from error
