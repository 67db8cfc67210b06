"""One training run from its configuration to its result: reads from top to bottom. Imports TensorFlow."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from infra import progress as events
from infra.catalog import DatasetVersion
from infra.errors import ConfigError
from infra.storage import Storage
from training.augment.batch_draws import check_pairs
from training.checkpoint import Checkpoints, Progress
from training.config import TrainConfig, image_size_of
from training.confusion_picture import confusion_svg
from training.dataset import Dataset
from training.distribution import check_divisible, make_strategy
from training.evaluation import Evaluator
from training.export import export
from training.interruption import StopRequest, stop_at_boundaries
from training.loop import TrainingLoop
from training.models import ModelSpec, build_model
from training.normalization import pixels_of
from training.optimizers import make_optimizer, make_schedule
from training.order import TrainingOrder, chosen_order
from training.pipelines.pipeline import Pipeline
from training.pipelines.training_input import Wanted, open_training_input
from training.reading import RecordReader
from training.tensorboard_log import TensorBoardLog
from training.trace import ConsumedTrace

EVALUATED_SPLITS = ("validation", "test")


@dataclass
class Parts:
    """What the loop, the evaluation and the export share."""

    strategy: Any
    spec: ModelSpec
    model: Any
    optimizer: Any
    schedule: Any
    evaluator: Evaluator


def train(config: TrainConfig, version: DatasetVersion, run_dir: Path) -> dict[str, Any]:
    """Train, evaluate and export; go on where an earlier process with the same ``run_dir`` was.

    The caller has started TensorFlow (``tensorflow_runtime.start``) and holds the lock on ``run_dir``.

    Returns:
        The result of the run, JSON-able.

    Raises:
        Cancelled: stopped on request, resumable.
    """
    dataset = Dataset(version, config.reading)
    readers = {split: dataset.reader(split) for split in dataset.splits}
    order = chosen_order(config.data, readers["train"].table, version.manifest.classes)
    strategy = make_strategy(config.run.devices)
    check_divisible(config.data.global_batch_size, strategy.num_replicas_in_sync)
    check_pairs(config.augment, config.data.global_batch_size // strategy.num_replicas_in_sync)
    parts = build_parts(config, strategy, version, order)
    wanted = Wanted(config.data, config.reading, config.augment)
    reading = open_training_input(wanted, version, readers["train"], order, parts.spec.image_size)
    events.log(f"reading {version.ref} train: {reading}")
    checkpoints = Checkpoints(Storage.at(run_dir / "checkpoints"), config.run.keep_checkpoints)
    with stop_at_boundaries() as stop:
        validation = readers.get("validation")
        loop = _train(config, parts, order, reading.pipeline, validation, checkpoints, run_dir, stop)
        metrics = _evaluate(parts, readers, version.manifest.classes, run_dir, stop)
        stop.check()
        events.stage("export", 1, unit="models")
        export_dir = run_dir / "export"
        grey = readers["train"].first_sound().channels == 1  # one setting of the preparation decides for all
        _export(parts, version.manifest.classes, export_dir, grey=grey)
        events.progress("export", 1, 1, unit="models")
    dataset.close()
    result = _result(config, version, run_dir, export_dir, parts, loop, metrics)
    return {**result, "reading": reading.described(), "bad_records": dataset.bad_records.to_result()}


def model_spec(config: TrainConfig, version: DatasetVersion, num_replicas: int) -> ModelSpec:
    """What the model of a run is to be."""
    return ModelSpec(
        name=config.model.name,
        num_classes=len(version.manifest.classes),
        image_size=image_size_of(config),
        dropout=config.model.dropout,
        synchronized=config.model.synchronized_batchnorm and num_replicas > 1,
        weights=config.model.weights,
        seed=config.data.seed,
        pixels=pixels_of(version.manifest) if config.data.normalization == "dataset" else None,
    )


def build_parts(config: TrainConfig, strategy: Any, version: DatasetVersion, order: TrainingOrder) -> Parts:
    """Model, optimizer and schedule under the strategy, with their first weights."""
    policy = config.run.mixed_precision
    keras.config.set_dtype_policy("float32" if policy == "off" else f"mixed_{policy}")
    spec = model_spec(config, version, strategy.num_replicas_in_sync)
    with strategy.scope():
        model = build_model(spec)
        _load_weights(model, config.model.weights)
        schedule = make_schedule(config, config.run.epochs * order.steps_per_epoch)
        optimizer = make_optimizer(config, schedule)
        optimizer.build(model.trainable_variables)
    evaluator = Evaluator(strategy, model, spec.num_classes, spec.image_size, config.data.global_batch_size)
    return Parts(strategy, spec, model, optimizer, schedule, evaluator)


def _load_weights(model: Any, weights: str | None) -> None:
    """Weights from a file, as far as their shapes fit (a classifier of other classes starts anew)."""
    if weights is None or weights == "imagenet":
        return
    if not Path(weights).is_file():
        raise ConfigError(
            f"model.weights = {weights!r}: no such file", "give the path of a .weights.h5 or .keras file"
        )
    try:
        model.load_weights(weights, skip_mismatch=weights.endswith(".h5"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.weights = {weights!r} cannot be loaded: {error}") from error


def _train(
    config: TrainConfig,
    parts: Parts,
    order: TrainingOrder,
    pipeline: Pipeline,
    validation: RecordReader | None,
    checkpoints: Checkpoints,
    run_dir: Path,
    stop: StopRequest,
) -> TrainingLoop:
    """Run the loop from the latest checkpoint, then bring back the best model."""
    with parts.strategy.scope():
        found = checkpoints.restore_latest([*parts.model.variables, *parts.optimizer.variables])
    progress = found or Progress()
    if found is not None:
        events.log(f"resuming at epoch {progress.epoch + 1}, step {progress.step} of {order.steps_per_epoch}")
    with contextlib.ExitStack() as open_files:
        log = open_files.enter_context(contextlib.closing(TensorBoardLog(run_dir / "logs")))
        trace = None
        if config.run.trace_records:
            trace = ConsumedTrace(run_dir / "consumed.jsonl", progress.trace_bytes)
            open_files.enter_context(contextlib.closing(trace))
        loop = TrainingLoop(
            config=config,
            strategy=parts.strategy,
            model=parts.model,
            optimizer=parts.optimizer,
            schedule=parts.schedule,
            pipeline=pipeline,
            order=order,
            evaluator=parts.evaluator,
            validation=validation,
            checkpoints=checkpoints,
            progress=progress,
            log=log,
            trace=trace,
            stop=stop,
        )
        loop.run()
    assert loop.progress.best is not None, "the last epoch is always compared"
    with parts.strategy.scope():
        checkpoints.restore_best(int(loop.progress.best["epoch"]), list(parts.model.variables))
    return loop


def _evaluate(
    parts: Parts,
    readers: dict[str, RecordReader],
    classes: list[str],
    run_dir: Path,
    stop: StopRequest,
) -> dict[str, Any]:
    """Split -> figures of the best model, for the splits that there are."""
    results = {}
    for split in EVALUATED_SPLITS:
        if split not in readers:
            continue
        total = len(readers[split].table)
        events.stage(f"evaluate {split}", total)

        def on_batch(done: int, split: str = split, total: int = total) -> None:
            events.progress(f"evaluate {split}", done, total)
            stop.check()

        evaluation = parts.evaluator.evaluate(readers[split], on_batch)
        results[split] = evaluation.to_result(classes)
        events.metrics(split=split, loss=evaluation.loss, accuracy=evaluation.accuracy, final=True)
        picture = confusion_svg(
            evaluation.confusion, classes, title=f"{split}: accuracy {evaluation.accuracy:.1%}"
        )
        Storage.at(run_dir).write_atomic(f"confusion-{split}.svg", picture.encode("utf-8", "replace"))
    return results


def _export(parts: Parts, classes: list[str], folder: Path, *, grey: bool) -> None:
    """Export a copy of the model that belongs to no strategy."""
    weights = parts.model.get_weights()
    # All the same but for what has to do with the strategy, and weights that are overwritten anyway.
    plain = build_model(replace(parts.spec, synchronized=False, weights=None))
    plain.set_weights(weights)
    plain.save_weights(folder.parent / "model.weights.h5")
    export(plain, classes, parts.spec.image_size, folder, grey=grey)


def _result(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    export_dir: Path,
    parts: Parts,
    loop: TrainingLoop,
    metrics: dict[str, Any],
) -> dict[str, Any]:
    missing = [split for split in EVALUATED_SPLITS if split not in metrics]
    notes = [f"{version.ref} has no {split} split: nothing was measured on it" for split in missing]
    if "validation" in missing:
        notes.append("without validation examples the last model counts as the best")
    return {
        "run_dir": str(run_dir),
        "dataset": version.name,
        "version": version.version,
        "model": config.model.name,
        "image_size": parts.spec.image_size,
        "num_parameters": int(parts.model.count_params()),
        "classes": version.manifest.classes,
        "epochs": config.run.epochs,
        "steps": loop.total_steps,
        "global_batch_size": config.data.global_batch_size,
        "num_replicas": parts.strategy.num_replicas_in_sync,
        "devices": list(parts.strategy.extended.worker_devices),
        "metrics": metrics,
        "best": loop.progress.best,
        "history": loop.progress.history,
        **{name: round(value, 4) for name, value in loop.rates().items()},
        "export_dir": str(export_dir),
        "tensorboard_dir": str(run_dir / "logs"),
        "confusion_pictures": {split: str(run_dir / f"confusion-{split}.svg") for split in metrics},
        "notes": notes,
        "unchanged": False,
        "tensorflow": tf.__version__,
    }
