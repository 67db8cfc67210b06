"""One training run from its configuration to its result, from top to bottom, with any framework."""

from __future__ import annotations

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import OutOfMemory
from shardmill.training.config import TrainConfig
from shardmill.training.dataset import Dataset
from shardmill.training.frameworks import start
from shardmill.training.ranks.cluster import Cluster, Meeting
from shardmill.training.ranks.heartbeat import Heart
from shardmill.training.results.tracking.tracked import TrackedRun
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.beginning import Models, begin_run, write_environment
from shardmill.training.run.ending.end_run import TrainedRun, end_run
from shardmill.training.run.epochs.epoch_loop import EpochLoop, TrainingData, resumed_loop
from shardmill.training.run.framework import Framework, Model
from shardmill.training.run.memory.fallback import MoreParts
from shardmill.training.run.sharing.division import check_rows
from shardmill.training.run.sharing.shared_batch import share_batch
from shardmill.training.run.stopping import (
    AgreedStop,
    end_at_second_signal,
    raise_when_preempted,
    stop_at_boundaries,
)
from shardmill.training.tasks.settings import settings_for


def train(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    place: Cluster | Meeting | None = None,
    heart: Heart | None = None,
) -> dict[str, Any]:
    """Train, evaluate and export. Continue where an earlier process with the same ``run_dir`` stopped.

    The caller holds the lock on ``run_dir``. If there are several ranks, each calls this function.

    Args:
        config: the configuration.
        version: the dataset version.
        run_dir: the folder of the run; only the first rank writes to it.
        place: the place of this process among the ranks; None: it trains alone.
        heart: beats for the parent that watches this process; None: no parent does.

    Returns:
        The result of the run, JSON-able. The result of a rank other than the first is incomplete.

    Raises:
        ConfigError: the global batch cannot be divided among the devices, or a setting does not fit.
        RankLost: another rank ended or does not answer.
        Cancelled, Preempted: stopped on request; the run can be resumed.
    """
    # Before anything is built, check what can be checked, and find the other ranks.
    preemption = (signal.SIGTERM, signal.Signals[config.run.preemption_signal])
    raise_when_preempted(preemption)
    config.export.check_packages(config.run.framework)
    asked = settings_for(config, version)
    framework: Framework = start(asked.run.framework, asked, place)
    ranks = framework.ranks
    raise_when_preempted(preemption)  # again: TensorFlow took the signal over when the ranks met
    with ExitStack() as held:
        held.enter_context(framework.errors_of_peers())
        if not ranks.is_first:  # what these ranks write is the same as what the first one writes
            run_dir = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="shardmill-rank-")))

        # The records that the run learns from, and the model.
        dataset = Dataset(version, asked.reading)
        readers = {split: dataset.reader(split) for split in dataset.splits}
        train_split = readers["train"]
        beginning = begin_run(asked, train_split, run_dir, ranks)
        config, order = beginning.config, beginning.records.order
        rows = check_rows(config, ranks.num_ranks, framework.num_local_replicas)
        models = Models(framework, version, config, order.steps_per_epoch)
        environment = write_environment(config, version, framework.devices, run_dir)

        # The batches. If there are several ranks, each takes its own rows of every step.
        division, balance = share_batch(config, framework, models.first.spec, train_split, order, run_dir)
        examples = framework.open_input(config, train_split, order, division)
        events.log(f"reading {version.ref} train: {examples.opened}")
        data = TrainingData(examples, train_split, order, readers.get("validation"), balance)

        # Everything that ends with the training, whatever ends it.
        ranks.on_batch = None if heart is None else heart.beat
        waited = held.enter_context(framework.connected(config))
        if balance is not None and waited is not None:
            balance.measure_waiting(waited)
        tracked = TrackedRun(run_dir, environment, config.tracking, config.run.best_metric)
        trackers = held.enter_context(Trackers(tracked if ranks.is_first else None))
        stop = held.enter_context(stop_at_boundaries(AgreedStop(ranks, heart), preemption))
        held.enter_context(end_at_second_signal(preemption, has_parent=heart is not None))

        # Train to the best model; if a step does not fit into memory, from the last checkpoint in more parts.
        parts = MoreParts(config, beginning.settled, run_dir, rows, ranks)
        model: Model | None = None
        loop: EpochLoop | None = None
        while True:
            model = models.take(parts.config)
            try:
                with resumed_loop(parts.config, framework, model, data, run_dir, stop, trackers) as loop:
                    loop.run()
                break
            except OutOfMemory as error:
                parts.after(error)
            model = loop = None  # nothing may hold the model that did not fit while the next one is built

        # Evaluate, export and report the best model.
        notes = [*model.notes, *parts.settled.notes(asked)]
        trained = TrainedRun(run_dir, beginning, dataset, readers, framework, balance, loop, model, notes)
        result = end_run(trained, examples.opened.described(), stop, trackers)
        dataset.close()
        return result
