"""One training run from its configuration to its result, from top to bottom. Imports TensorFlow."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import keras

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.dataset import Dataset
from shardmill.training.export.packages import check_packages
from shardmill.training.ranks.cluster import Cluster
from shardmill.training.ranks.heartbeat import Heart
from shardmill.training.ranks.local_sums import Patience
from shardmill.training.results.tracking.tracked import TrackedRun
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.beginning import Models, begin_run, write_environment
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.ending.end_run import TrainedRun, end_run
from shardmill.training.run.epochs.data_and_outputs import RunOutputs, TrainingData
from shardmill.training.run.epochs.to_best import train_to_best
from shardmill.training.run.memory.fallback import settle_parts
from shardmill.training.run.sharing.division import planned_division, unit_of_rows
from shardmill.training.run.sharing.shared_batch import share_batch
from shardmill.training.run.stopping.agreed_stop import AgreedStop
from shardmill.training.run.stopping.interruption import StopFlag, raise_when_preempted, stop_at_boundaries
from shardmill.training.run.stopping.second_signal import end_at_second_signal
from shardmill.training.tasks.annotations import objects_of
from shardmill.training.tasks.traits import settings_for
from shardmill.training.tensorflow.data.pipeline import Pipeline
from shardmill.training.tensorflow.data.training_input import InputSettings, open_training_input
from shardmill.training.tensorflow.ending.export import export_model
from shardmill.training.tensorflow.ending.result import describe_model, notes_on_model
from shardmill.training.tensorflow.loop import TrainingLoop
from shardmill.training.tensorflow.parts import TrainingParts, build_parts
from shardmill.training.tensorflow.ranks.group import group_of
from shardmill.training.tensorflow.ranks.strategy import (
    Communication,
    check_divisible,
    make_rank_strategy,
    make_strategy,
    num_local_replicas,
)
from shardmill.training.tensorflow.sharing.moments import moments_between_ranks
from shardmill.training.tensorflow.sharing.speed import measured_rank


def train(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    cluster: Cluster | None = None,
    heart: Heart | None = None,
) -> dict[str, Any]:
    """Train, evaluate and export. Continue where an earlier process with the same ``run_dir`` stopped.

    The caller has started TensorFlow (``starting.start``) and holds the lock on ``run_dir``. If
    there are several ranks, each calls this function; all but the first pass a folder that is deleted later.

    Args:
        config: the configuration.
        version: the dataset version.
        run_dir: the folder of the run.
        cluster: the ranks; None: this process trains alone.
        heart: beats for the parent that watches this process; None: no parent does.

    Returns:
        The result of the run, JSON-able. The result of a rank other than the first is incomplete.

    Raises:
        ConfigError: the global batch cannot be divided among the devices, or a setting does not fit.
        Cancelled, Preempted: stopped on request; the run can be resumed.
    """
    # Before anything is built, check what can be checked, and find the other ranks.
    preemption = (signal.SIGTERM, signal.Signals[config.run.preemption_signal])
    raise_when_preempted(preemption)
    check_packages(config.export.formats, "tensorflow")
    asked = settings_for(config, version)
    dataset = Dataset(version, asked.reading)
    readers = {split: dataset.reader(split) for split in dataset.splits}
    strategy = _strategy(asked, cluster)
    ranks = group_of(strategy)
    raise_when_preempted(preemption)  # again: TensorFlow took the signal over when the ranks met

    # The records that the run learns from, and the model.
    train_split = readers["train"]
    beginning = begin_run(asked, train_split, run_dir, ranks)
    config, order = beginning.config, beginning.records.order
    rows = _rows_of_replica(config, strategy)
    models = Models(partial(_built, strategy, version, order.steps_per_epoch), config)
    devices = list(strategy.extended.worker_devices)
    environment = write_environment(config, version, devices, run_dir)

    # The batches. If there are several ranks, each takes its own rows of every step.
    shared = None
    if ranks.num_ranks > 1:
        unit = unit_of_rows(config, num_local_replicas(strategy))
        own = measured_rank(models.first, config)
        shared = share_batch(config, unit, ranks, own, train_split, order, run_dir)
    objects = objects_of(models.first.task, train_split)
    settings = InputSettings(config.data, config.reading, config.augment, objects, ranks.threads)
    own_rows = None if shared is None else shared.division.slice_of(ranks.rank)
    reading = open_training_input(settings, train_split, order, image_size_of(config), own_rows)
    events.log(f"reading {version.ref} train: {reading}")
    balance = None if shared is None else shared.balance
    data = TrainingData(reading.pipeline, order, readers.get("validation"), balance)

    # Train to the best model, then evaluate, export and report it.
    ranks.on_batch = None if heart is None else heart.beat
    stop = AgreedStop(ranks, heart)
    tracked = TrackedRun(run_dir, environment, config.tracking, config.run.best_metric)
    patience = Patience(config.ranks.peer_timeout_seconds, config.ranks.start_timeout_seconds)
    with (
        moments_between_ranks(strategy, cluster, patience) as sums,
        Trackers(tracked if ranks.is_first else None) as trackers,
        stop_at_boundaries(stop, preemption),
        end_at_second_signal(preemption, has_parent=heart is not None),
    ):
        if balance is not None and sums is not None:
            balance.measure_waiting(lambda: sums.waited_seconds)

        def attempt(config: TrainConfig) -> tuple[TrainingParts, TrainingLoop]:
            parts = models.take(config)
            return parts, train_and_restore_best(config, parts, data, run_dir, stop, trackers)

        (parts, loop), settled = settle_parts(config, beginning.settled, run_dir, rows, ranks, attempt)
        notes = [*notes_on_model(parts), *settled.notes(asked)]
        result = end_run(
            TrainedRun(run_dir, beginning, dataset, readers, ranks, balance, loop, parts.evaluator, notes),
            export=lambda: export_model(config.export, parts, readers, run_dir),
            describe=lambda: {**describe_model(parts), "reading": reading.described()},
            stop=stop,
            trackers=trackers,
        )
    dataset.close()
    return result


def train_and_restore_best(
    config: TrainConfig,
    parts: TrainingParts,
    data: TrainingData[Pipeline],
    run_dir: Path,
    stop: StopFlag,
    trackers: Trackers | None = None,
) -> TrainingLoop:
    """Run the loop from the latest checkpoint in ``run_dir``, then restore the best model.

    Returns:
        The loop at its end; ``parts`` hold the best model.

    Raises:
        Cancelled, Preempted: stopped on request.
    """

    def begin(outputs: RunOutputs, progress: Progress) -> TrainingLoop:
        return TrainingLoop(config, parts, data, outputs, progress, stop)

    ranks, told = group_of(parts.strategy), trackers or Trackers(None)
    return train_to_best(config.run, run_dir, parts, data.order, ranks, stop, told, begin)


def _strategy(config: TrainConfig, cluster: Cluster | None) -> Any:
    if cluster is None:
        return make_strategy(config.run.devices)
    settings = config.ranks
    return make_rank_strategy(
        cluster,
        Communication(settings.collectives, settings.peer_timeout_seconds, settings.start_timeout_seconds),
    )


def _rows_of_replica(config: TrainConfig, strategy: Any) -> int:
    """Return the number of rows that each replica of this process takes in a step, by the settings.

    Raises:
        ConfigError: the global batch cannot be divided like this.
    """
    check_divisible(config.data.batch_size, strategy)
    ranks, replicas = group_of(strategy), num_local_replicas(strategy)
    division = planned_division(config, ranks.num_ranks, unit_of_rows(config, replicas))
    rows = division.rows[ranks.rank] // replicas
    config.augment.check_pairs(rows)
    return rows


def _built(
    strategy: Any, version: DatasetVersion, steps_per_epoch: int, config: TrainConfig
) -> TrainingParts:
    """Build the model, the optimizer and their helpers. Each call begins with the same random weights."""
    keras.utils.set_random_seed(config.data.seed % 2**32)
    return build_parts(config, strategy, version, steps_per_epoch)
