"""One training run from its configuration to its result, from top to bottom. Imports TensorFlow."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras

from infra import progress as events
from infra.dataset.version import DatasetVersion
from infra.storage.filesystem import Storage
from training.augment.batch_parameters import check_pairs
from training.config import TrainConfig, image_size_of
from training.dataset import Dataset
from training.export.packages import check_packages
from training.loop.checkpoints.checkpoints import Progress
from training.loop.ending.export import export_model
from training.loop.ending.result import run_result
from training.loop.epochs.data_and_outputs import RunOutputs, TrainingData
from training.loop.epochs.to_best import train_to_best
from training.loop.evaluating.final_evaluation import evaluate_left_out, evaluate_splits, write_label_errors
from training.loop.loop import TrainingLoop
from training.loop.memory.fallback import settle_parts
from training.loop.parts import TrainingParts, build_parts
from training.loop.sharing.balance_record import BalanceRecord, RankLabels
from training.loop.sharing.division import measured_division, planned_division, unit_of_rows
from training.loop.sharing.moments import moments_between_ranks
from training.loop.sharing.speed import measured_rank
from training.loop.stopping.agreed_stop import AgreedStop
from training.loop.stopping.interruption import StopFlag, raise_when_preempted, stop_at_boundaries
from training.loop.stopping.second_signal import end_at_second_signal
from training.ranks.cluster import Cluster
from training.ranks.group import RankGroup, group_of
from training.ranks.heartbeat import Heart
from training.ranks.local_sums import Patience
from training.ranks.strategy import (
    Communication,
    check_divisible,
    make_rank_strategy,
    make_strategy,
    num_local_replicas,
)
from training.reading import RecordReader
from training.results.predictions.label_errors import OUT_OF_SAMPLE
from training.results.report.writing import write_run_report
from training.results.run_files.environment import describe_environment
from training.results.tracking.tracked import TrackedRun
from training.results.tracking.trackers import Trackers
from training.runs.folds import TrainRecords, divide_train_split
from training.runs.settled import Settled, read_settled, settled_by
from training.tasks.annotations import objects_of
from training.tasks.traits import settings_for
from training.tf_data.pipeline import Pipeline
from training.tf_data.training_input import InputSettings, TrainingInput, open_training_input


def train(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    cluster: Cluster | None = None,
    heart: Heart | None = None,
) -> dict[str, Any]:
    """Train, evaluate and export. Continue where an earlier process with the same ``run_dir`` stopped.

    The caller has started TensorFlow (``tensorflow_runtime.start``) and holds the lock on ``run_dir``. Of
    several ranks, each calls this; all but the first with a folder that is thrown away.

    Args:
        config: the configuration.
        version: the dataset version.
        run_dir: the folder of the run.
        cluster: the ranks; None: this process trains alone.
        heart: beats for the parent that watches this process; None: nobody does.

    Returns:
        The result of the run, JSON-able; of ranks other than the first only parts of it are of use.

    Raises:
        Cancelled: stopped on request; the run can be resumed.
    """
    preemption = (signal.SIGTERM, signal.Signals[config.run.preemption_signal])
    raise_when_preempted(preemption)
    check_packages(config.export.formats, "tensorflow")
    config = settings_for(config, version)
    dataset = Dataset(version, config.reading)
    readers = {split: dataset.reader(split) for split in dataset.splits}
    strategy = _strategy(config, cluster)
    raise_when_preempted(preemption)
    run = _opened(config, run_dir, readers, strategy)
    ranks = group_of(strategy)
    ranks.on_batch = None if heart is None else heart.beat
    stop = AgreedStop(ranks, heart)
    tracked = TrackedRun(run_dir, run.environment, config.tracking, config.run.best_metric)
    patience = Patience(config.ranks.peer_timeout_seconds, config.ranks.start_timeout_seconds)
    with (
        moments_between_ranks(strategy, cluster, patience),
        Trackers(tracked if ranks.is_first else None) as trackers,
        stop_at_boundaries(stop, preemption),
        end_at_second_signal(),
    ):
        parts, loop, settled = _fitted(run, stop, trackers)
        evaluated = [readers[split] for split in OUT_OF_SAMPLE if split in readers]
        metrics = evaluate_splits(parts.evaluator, evaluated, run_dir, stop.check)
        left_out = None
        if run.records.left_out is not None:
            unseen = readers["train"], run.records.left_out
            left_out = evaluate_left_out(parts.evaluator, *unseen, run_dir, stop.check)
        label_errors = write_label_errors(run_dir)
        stop.check()
        forms = export_model(config.export, parts, readers, run_dir)
        bad_records = ranks.all_values(dataset.bad_records.to_result())
        result = {
            **run_result(run.config, version, run_dir, parts, loop, metrics, settled.notes(config)),
            "reading": run.reading.described(),
            "bad_records": _of_all_ranks(bad_records),
            "label_errors": label_errors,
            "left_out": left_out,
            "exports": forms,
        }
        if run.data.balance is not None and (found := run.data.balance.latest()) is not None:
            result["rank_balance"] = found.to_json()
            result["notes"] += found.warnings
        if ranks.is_first:
            result["report"] = str(write_run_report(run_dir, result, readers))
            trackers.end(result)
    dataset.close()
    return result


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """A run before its first step.

    Attributes:
        config: the configuration that it follows: as asked for, with what the run has settled.
        settled: what it settled when it began.
        run_dir: its folder.
        version: the dataset version.
        strategy: the ``tf.distribute.Strategy``.
        built: the model with all that trains it, until the first attempt takes it out.
        rows: the examples of a step on one replica.
        records: the records of the train split that it learns from, and those that it leaves out.
        reading: how they are read.
        data: the batches.
        environment: with what it is made.
    """

    config: TrainConfig
    settled: Settled
    run_dir: Path
    version: DatasetVersion
    strategy: Any
    built: list[TrainingParts]
    rows: int
    records: TrainRecords
    reading: TrainingInput
    data: TrainingData[Pipeline]
    environment: dict[str, Any]

    def take_parts(self, config: TrainConfig) -> TrainingParts:
        """Return the model, built again with the same random weights where it was taken before."""
        if self.built:
            return self.built.pop()
        keras.utils.set_random_seed(config.data.seed % 2**32)
        return build_parts(config, self.strategy, self.version, self.records.order.steps_per_epoch)


def _opened(
    config: TrainConfig, run_dir: Path, readers: Mapping[str, RecordReader], strategy: Any
) -> _OpenRun:
    """Build the model, divide the global batch, open the input, and write environment.json."""
    train, ranks = readers["train"], group_of(strategy)
    version = train.split.version
    settled = _settled(config, run_dir, ranks)
    config = settled.with_batch_size(config)
    records = divide_train_split(config.data, train, version.manifest.classes)
    order = records.order
    config = settled.applied(config, order.steps_per_epoch)
    check_divisible(config.data.batch_size, strategy)
    unit = unit_of_rows(config, num_local_replicas(strategy))
    division = planned_division(config, ranks.num_ranks, unit)
    rows = division.rows[ranks.rank] // num_local_replicas(strategy)
    check_pairs(config.augment, rows)
    parts = build_parts(config, strategy, version, order.steps_per_epoch)
    environment = describe_environment(config, version, list(strategy.extended.worker_devices))
    Storage.at(run_dir).write_atomic("environment.json", json.dumps(environment, indent=1).encode("ascii"))
    own_rows = balance = None
    if ranks.num_ranks > 1:
        own = measured_rank(parts, config)
        division = measured_division(division, config, unit, ranks, own, run_dir)
        own_rows = division.slice_of(ranks.rank)
        labels = RankLabels.of(version.manifest.classes, train.table)
        balance = BalanceRecord(run_dir, ranks, own.kind, division, order, labels)
    objects = objects_of(parts.task, train)
    settings = InputSettings(config.data, config.reading, config.augment, objects)
    reading = open_training_input(settings, train, order, image_size_of(config), own_rows)
    events.log(f"reading {version.ref} train: {reading}")
    data = TrainingData(reading.pipeline, order, readers.get("validation"), balance)
    return _OpenRun(
        config, settled, run_dir, version, strategy, [parts], rows, records, reading, data, environment
    )


def _fitted(run: _OpenRun, stop: StopFlag, trackers: Trackers) -> tuple[TrainingParts, TrainingLoop, Settled]:
    """Train to the best model, in more parts a step where memory is too small, and return what is settled."""

    def attempt(config: TrainConfig) -> tuple[TrainingParts, TrainingLoop]:
        parts = run.take_parts(config)
        return parts, train_and_restore_best(config, parts, run.data, run.run_dir, stop, trackers)

    if group_of(run.strategy).num_ranks > 1:  # they would have to agree
        return *attempt(run.config), run.settled
    (parts, loop), settled = settle_parts(run.config, run.settled, run.run_dir, run.rows, attempt)
    return parts, loop, settled


def _strategy(config: TrainConfig, cluster: Cluster | None) -> Any:
    if cluster is None:
        return make_strategy(config.run.devices)
    settings = config.ranks
    return make_rank_strategy(
        cluster,
        Communication(settings.collectives, settings.peer_timeout_seconds, settings.start_timeout_seconds),
    )


def _settled(config: TrainConfig, run_dir: Path, ranks: RankGroup) -> Settled:
    """Return what the run settled when it began, as the folder of rank 0 says."""
    own = (read_settled(run_dir) or settled_by(config)) if ranks.is_first else None
    return Settled(**ranks.value_of_first(None if own is None else asdict(own)))


def train_and_restore_best(
    config: TrainConfig,
    parts: TrainingParts,
    data: TrainingData[Pipeline],
    run_dir: Path,
    stop: StopFlag,
    trackers: Trackers | None = None,
) -> TrainingLoop:
    """Run the loop from the latest checkpoint in ``run_dir``, then restore the best model."""

    def begin(outputs: RunOutputs, progress: Progress) -> TrainingLoop:
        return TrainingLoop(config, parts, data, outputs, progress, stop)

    ranks, told = group_of(parts.strategy), trackers or Trackers(None)
    return train_to_best(config.run, run_dir, parts, data.order, ranks, stop, told, begin)


def _of_all_ranks(found: list[list[dict[str, str]]]) -> list[dict[str, str]]:
    """Return the damaged records that any rank met, each once."""
    return list({record["id"]: record for of_rank in found for record in of_rank}.values())
