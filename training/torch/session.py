"""One training run with PyTorch from its configuration to its result, from top to bottom."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.dataset import Dataset
from shardmill.training.export.packages import check_packages
from shardmill.training.ranks.heartbeat import Heart
from shardmill.training.reading import RecordReader
from shardmill.training.results.tracking.tracked import TrackedRun
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.beginning import Models, begin_run, write_environment
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.ending.end_run import TrainedRun, end_run
from shardmill.training.run.ending.source_check import Written, checked_on
from shardmill.training.run.epochs.data_and_outputs import RunOutputs, TrainingData
from shardmill.training.run.epochs.to_best import train_to_best
from shardmill.training.run.memory.fallback import settle_parts
from shardmill.training.run.sharing.division import unit_of_rows
from shardmill.training.run.sharing.shared_batch import share_batch
from shardmill.training.run.stopping.agreed_stop import AgreedStop
from shardmill.training.run.stopping.interruption import raise_when_preempted, stop_at_boundaries
from shardmill.training.run.stopping.second_signal import end_at_second_signal
from shardmill.training.tasks.traits import settings_for
from shardmill.training.torch.evaluating.evaluation import Evaluator
from shardmill.training.torch.loop import TrainingLoop
from shardmill.training.torch.outputs.export import export_model
from shardmill.training.torch.outputs.result import describe_model
from shardmill.training.torch.parts import TrainingParts, build_parts
from shardmill.training.torch.ranks.group import Place, choose_device, join
from shardmill.training.torch.reading import check_rows, open_training_input
from shardmill.training.torch.speed import measured_rank


def train(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    place: Place = None,
    heart: Heart | None = None,
) -> dict[str, Any]:
    """Train, evaluate and export. Continue where an earlier process with the same ``run_dir`` stopped.

    The caller holds the lock on ``run_dir``. Of several ranks, each calls this; all but the first with a
    folder that is thrown away.

    Args:
        config: the configuration.
        version: the dataset version.
        run_dir: the folder of the run.
        place: the place of this process among the ranks; None: it trains alone.
        heart: beats for the parent that watches this process; None: nobody does.

    Returns:
        The result of the run, JSON-able; of ranks other than the first only parts of it are of use.

    Raises:
        Cancelled: stopped on request; the run can be resumed.
    """
    # Check what can be checked before anything is built, and find the other ranks.
    preemption = (signal.SIGTERM, signal.Signals[config.run.preemption_signal])
    raise_when_preempted(preemption)
    check_packages(config.export.formats, "torch")
    asked = settings_for(config, version)
    torch.use_deterministic_algorithms(asked.run.deterministic)
    torch.backends.cudnn.benchmark = not asked.run.deterministic  # all batches have one shape
    dataset = Dataset(version, asked.reading)
    readers = {split: dataset.reader(split) for split in dataset.splits}
    own = choose_device(asked, place)
    ranks = join(asked, place, own.device)

    # The records that the run learns from, and the model.
    train_split = readers["train"]
    beginning = begin_run(asked, train_split, run_dir, ranks)
    config, order = beginning.config, beginning.records.order
    check_rows(config, ranks.num_ranks)
    models = Models(partial(_built, version, order.steps_per_epoch, ranks, own.device), config)
    environment = write_environment(config, version, ranks.all_values(own.name), run_dir)

    # The batches: of several ranks, each takes its rows of every step.
    shared = None
    if ranks.num_ranks > 1:
        speed = measured_rank(models.first, config, own)
        shared = share_batch(config, unit_of_rows(config), ranks, speed, train_split, order, run_dir)
    shares = None if shared is None else shared.division.rows
    image_size = models.first.spec.image_size
    reading = open_training_input(config, train_split, order, image_size, ranks, own, shares)
    balance = None if shared is None else shared.balance
    data = TrainingData(reading.batches, order, readers.get("validation"), balance)

    # Train to the best model, then evaluate, export and report it.
    ranks.on_batch = None if heart is None else heart.beat
    stop = AgreedStop(ranks, heart)
    tracked = TrackedRun(run_dir, environment, config.tracking, config.run.best_metric)
    with (
        Trackers(tracked if ranks.is_first else None) as trackers,
        stop_at_boundaries(stop, preemption),
        end_at_second_signal(preemption, has_parent=heart is not None),
    ):

        def attempt(config: TrainConfig) -> tuple[TrainingParts, Evaluator, TrainingLoop]:
            parts = models.take(config)
            evaluator = Evaluator(config, parts, own)

            def begin(outputs: RunOutputs, progress: Progress) -> TrainingLoop:
                return TrainingLoop(config, parts, evaluator, data, outputs, progress, stop)

            loop = train_to_best(config.run, run_dir, parts, order, ranks, stop, trackers, begin)
            return parts, evaluator, loop

        rows = config.data.batch_size
        (parts, evaluator, loop), settled = settle_parts(
            config, beginning.settled, run_dir, rows, ranks, attempt
        )
        notes = [*parts.notes, *settled.notes(asked)]
        result = end_run(
            TrainedRun(run_dir, beginning, dataset, readers, ranks, balance, loop, evaluator, notes),
            export=lambda: _exported(config, parts, evaluator, readers, run_dir),
            describe=lambda: {
                **describe_model(parts),
                "devices": environment["devices"],
                "reading": reading.described(),
            },
            stop=stop,
            trackers=trackers,
        )
    dataset.close()
    return result


def _built(
    version: DatasetVersion, steps_per_epoch: int, ranks: Any, device: Any, config: TrainConfig
) -> TrainingParts:
    """Build the model of the run with all that trains it, each time with the same random weights."""
    return build_parts(config, version, steps_per_epoch, ranks, device)


def _exported(
    config: TrainConfig,
    parts: TrainingParts,
    evaluator: Evaluator,
    readers: Mapping[str, RecordReader],
    run_dir: Path,
) -> Written:
    """Export the model, and compare its forms with it on the test split, if there is one."""
    records = checked_on(readers)
    names, maker = records.split.version.manifest.label_names, evaluator.maker(records)
    return export_model(parts.model, parts.task, names, maker, run_dir, config.export.formats)
