"""One training run with PyTorch from its configuration to its result, from top to bottom."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from infra import progress as events
from infra.dataset.version import DatasetVersion
from infra.storage.filesystem import Storage
from training.config import TrainConfig
from training.dataset import Dataset
from training.export.packages import check_packages
from training.loop.checkpoints.checkpoints import Progress
from training.loop.ending.common_result import common_result
from training.loop.epochs.data_and_outputs import RunOutputs, TrainingData
from training.loop.epochs.to_best import train_to_best
from training.loop.evaluating.final_evaluation import evaluate_left_out, evaluate_splits, write_label_errors
from training.loop.memory.fallback import settle_parts
from training.loop.sharing.balance_record import BalanceRecord, RankLabels
from training.loop.sharing.division import Division, measured_division, planned_division, unit_of_rows
from training.loop.stopping.agreed_stop import AgreedStop
from training.loop.stopping.interruption import StopFlag, raise_when_preempted, stop_at_boundaries
from training.loop.stopping.second_signal import end_at_second_signal
from training.order import Order
from training.ranks.heartbeat import Heart
from training.reading import RecordReader
from training.results.predictions.label_errors import OUT_OF_SAMPLE
from training.results.report.writing import write_run_report
from training.results.run_files.environment import describe_environment
from training.results.tracking.tracked import TrackedRun
from training.results.tracking.trackers import Trackers
from training.runs.folds import TrainRecords, divide_train_split
from training.runs.settled import Settled, read_settled, settled_by
from training.tasks.traits import settings_for
from training.torch_loop.evaluating.evaluation import Evaluator
from training.torch_loop.loop import TrainingLoop
from training.torch_loop.memory.figures import peak_device_bytes
from training.torch_loop.models.layers import num_parameters
from training.torch_loop.outputs.export import export_model
from training.torch_loop.parts import TrainingParts, build_parts
from training.torch_loop.ranks.group import Place, RankDevice, TorchRanks, choose_device, join
from training.torch_loop.reading import Batches, TrainingInput, check_rows, open_training_input
from training.torch_loop.speed import measured_rank


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
    preemption = (signal.SIGTERM, signal.Signals[config.run.preemption_signal])
    raise_when_preempted(preemption)
    check_packages(config.export.formats, "torch")
    config = settings_for(config, version)
    own = choose_device(config, place)
    torch.use_deterministic_algorithms(config.run.deterministic)
    torch.backends.cudnn.benchmark = not config.run.deterministic  # all batches have one shape
    dataset = Dataset(version, config.reading)
    readers = {split: dataset.reader(split) for split in dataset.splits}
    ranks = join(config, place, own.device)
    run = _opened(config, run_dir, readers, ranks, own)
    ranks.on_batch = None if heart is None else heart.beat
    stop = AgreedStop(ranks, heart)
    tracked = TrackedRun(run_dir, run.environment, config.tracking, config.run.best_metric)
    with (
        Trackers(tracked if ranks.is_first else None) as trackers,
        stop_at_boundaries(stop, preemption),
        end_at_second_signal(),
    ):
        (parts, evaluator, loop), settled = _fitted(run, stop, trackers)
        evaluated = [readers[split] for split in OUT_OF_SAMPLE if split in readers]
        metrics = evaluate_splits(evaluator, evaluated, run_dir, stop.check)
        left_out = None
        if run.records.left_out is not None:
            unseen = readers["train"], run.records.left_out
            left_out = evaluate_left_out(evaluator, *unseen, run_dir, stop.check)
        label_errors = write_label_errors(run_dir)
        stop.check()
        events.stage("export", 1, unit="models")
        exported: dict[str, dict[str, Any]] = {}
        if ranks.is_first:
            checked_on = next(readers[split] for split in ("test", "validation", "train") if split in readers)
            names, maker = version.manifest.label_names, evaluator.maker(checked_on)
            exported = export_model(parts.model, parts.task, names, maker, run_dir, config.export.formats)
        events.progress("export", 1, 1, unit="models")
        bad_records = ranks.all_values(dataset.bad_records.to_result())
        notes = [*parts.notes, *settled.notes(config)]
        result = {
            **common_result(run.config, version, run_dir, loop, metrics, notes),
            "framework": "torch",
            "torch": torch.__version__,
            "image_size": parts.spec.image_size,
            "num_parameters": num_parameters(parts.model),
            "num_replicas": ranks.num_ranks,
            "devices": run.environment["devices"],
            "reading": run.reading.described(),
            "bad_records": list({record["id"]: record for found in bad_records for record in found}.values()),
            "label_errors": label_errors,
            "left_out": left_out,
            "exports": exported,
            "device_peak_bytes": peak_device_bytes(own.device),
        }
        balance = run.data.balance
        if balance is not None and (found := balance.latest()) is not None:
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
        ranks: the ranks that train together.
        own: the device of this rank.
        built: the model with all that trains it, until the first attempt takes it out.
        records: the records of the train split that it learns from, and those that it leaves out.
        reading: how they are read.
        data: the batches.
        environment: with what it is made.
    """

    config: TrainConfig
    settled: Settled
    run_dir: Path
    version: DatasetVersion
    ranks: TorchRanks
    own: RankDevice
    built: list[TrainingParts]
    records: TrainRecords
    reading: TrainingInput
    data: TrainingData[Batches]
    environment: dict[str, Any]

    def take_parts(self, config: TrainConfig) -> TrainingParts:
        """Return the model, built again with the same random weights where it was taken before."""
        if self.built:
            return self.built.pop()
        steps = self.records.order.steps_per_epoch
        return build_parts(config, self.version, steps, self.ranks, self.own.device)


def _opened(
    config: TrainConfig,
    run_dir: Path,
    readers: Mapping[str, RecordReader],
    ranks: TorchRanks,
    own: RankDevice,
) -> _OpenRun:
    """Build the model, divide the global batch, open the input, and write environment.json."""
    train = readers["train"]
    version = train.split.version
    # The folder of rank 0 says what the run settled when it began.
    settled = Settled(**ranks.value_of_first(asdict(read_settled(run_dir) or settled_by(config))))
    config = settled.with_batch_size(config)
    records = divide_train_split(config.data, train, version.manifest.classes)
    order = records.order
    config = settled.applied(config, order.steps_per_epoch)
    check_rows(config, ranks.num_ranks)
    parts = build_parts(config, version, order.steps_per_epoch, ranks, own.device)
    environment = describe_environment(config, version, ranks.all_values(_name(own.device)))
    Storage.at(run_dir).write_atomic("environment.json", json.dumps(environment, indent=1).encode("ascii"))
    division = balance = None
    if ranks.num_ranks > 1:
        division, balance = _divided(config, parts, own, order, train, run_dir)
    shares = None if division is None else division.rows
    reading = open_training_input(config, train, order, parts.spec.image_size, ranks, own, shares)
    data = TrainingData(reading.batches, order, readers.get("validation"), balance)
    return _OpenRun(
        config, settled, run_dir, version, ranks, own, [parts], records, reading, data, environment
    )


def _fitted(
    run: _OpenRun, stop: StopFlag, trackers: Trackers
) -> tuple[tuple[TrainingParts, Evaluator, TrainingLoop], Settled]:
    """Train to the best model, in more parts a step where memory is too small, and return what is settled."""

    def attempt(config: TrainConfig) -> tuple[TrainingParts, Evaluator, TrainingLoop]:
        parts = run.take_parts(config)
        evaluator = Evaluator(config, parts, run.own)

        def begin(outputs: RunOutputs, progress: Progress) -> TrainingLoop:
            return TrainingLoop(config, parts, evaluator, run.data, outputs, progress, stop)

        loop = train_to_best(config.run, run.run_dir, parts, run.data.order, run.ranks, stop, trackers, begin)
        return parts, evaluator, loop

    if run.ranks.num_ranks > 1:  # they would have to agree
        return attempt(run.config), run.settled
    return settle_parts(run.config, run.settled, run.run_dir, run.config.data.batch_size, attempt)


def _divided(
    config: TrainConfig,
    parts: TrainingParts,
    own: RankDevice,
    order: Order,
    train: RecordReader,
    run_dir: Path,
) -> tuple[Division, BalanceRecord]:
    """Divide the global batch among the ranks, and begin to count what each of them does."""
    ranks, unit = parts.ranks, unit_of_rows(config)
    rank = measured_rank(parts, config, own)
    planned = planned_division(config, ranks.num_ranks, unit)
    division = measured_division(planned, config, unit, ranks, rank, run_dir)
    labels = RankLabels.of(train.split.version.manifest.classes, train.table)
    return division, BalanceRecord(run_dir, ranks, rank.kind, division, order, labels)


def _name(device: Any) -> str:
    """Return the name of a device for people."""
    return str(device) if device.type == "cpu" else f"{device} ({torch.cuda.get_device_name(device)})"
