"""End a run: evaluate its best model, export it, and write the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from shardmill.infra import progress as events
from shardmill.infra.dataset.between import NEAR_DUPLICATES_FILE, between_in_words
from shardmill.infra.dataset.joined import JoinedVersion
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.dataset import Dataset
from shardmill.training.ranks.heartbeat import Work
from shardmill.training.reading import RecordReader
from shardmill.training.results.predictions.file import predictions_file
from shardmill.training.results.predictions.label_errors.found import OUT_OF_SAMPLE
from shardmill.training.results.report.writing import write_run_report
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.beginning import Beginning
from shardmill.training.run.ending.final_evaluation import (
    evaluate_left_out,
    evaluate_splits,
    write_label_errors,
)
from shardmill.training.run.ending.source_check import check_on_sources, checked_on, notes_on
from shardmill.training.run.epochs.epoch_loop import EpochLoop
from shardmill.training.run.framework import Framework, Model
from shardmill.training.run.sharing.balance_record import BalanceRecord
from shardmill.training.run.stopping import StopFlag
from shardmill.training.tasks.registry import kind_of


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run whose best model is in memory.

    Attributes:
        run_dir: its folder.
        beginning: what it followed and learned from.
        dataset: the dataset version.
        readers: the records of each split.
        framework: trained it, with its ranks.
        balance: what each of them did; None: there was one.
        loop: the loop at its end.
        model: the best model.
        notes: what a reader of the result should know.
    """

    run_dir: Path
    beginning: Beginning
    dataset: Dataset
    readers: Mapping[str, RecordReader]
    framework: Framework
    balance: BalanceRecord | None
    loop: EpochLoop
    model: Model
    notes: list[str]


def end_run(
    run: TrainedRun, reading: Mapping[str, Any], stop: StopFlag, trackers: Trackers
) -> dict[str, Any]:
    """Evaluate and export the best model of a run, and report. Every rank must call this.

    Args:
        run: the run.
        reading: how the examples were read.
        stop: asks the run to stop.
        trackers: other systems that are told about the run.

    Returns:
        The result, JSON-able; of ranks other than the first only parts of it are of use.

    Raises:
        Cancelled: stopped on request.
    """
    config, records, ranks = run.beginning.config, run.beginning.records, run.framework.ranks
    evaluator = run.model.evaluator
    splits = [*OUT_OF_SAMPLE, "train"] if config.run.evaluate_train else OUT_OF_SAMPLE
    evaluated = [run.readers[split] for split in splits if split in run.readers]
    metrics = evaluate_splits(evaluator, evaluated, run.run_dir, stop.check)
    left_out = None
    if records.left_out is not None:
        unseen = run.readers["train"], records.left_out
        left_out = evaluate_left_out(evaluator, *unseen, run.run_dir, stop.check)
    label_errors = write_label_errors(run.run_dir)

    # The last time that ranks meet: rank 0 goes on alone, for as long as it takes.
    stop.check()
    bad_records = _bad_records(run)
    events.stage("export", 1, unit="models")
    exports = on_sources = None
    if ranks.is_first:
        with stop.during(Work.LONG):
            written = run.model.export(config, run.readers, run.run_dir)
            exports = written.forms
            on_sources = check_on_sources(written, checked_on(run.readers), run.run_dir)
    events.progress("export", 1, 1, unit="models")

    result = {
        **_figures(run, metrics),
        **_about_model(run),
        "reading": dict(reading),
        "bad_records": bad_records,
        "label_errors": label_errors,
        "left_out": left_out,
        "exports": exports,
        "on_source_files": on_sources,
    }
    if on_sources is not None:
        result["notes"] += notes_on(on_sources)
    if run.balance is not None and (found := run.balance.latest()) is not None:
        result["rank_balance"] = found.to_json()
        result["notes"] += found.warnings
    if ranks.is_first:
        with stop.during(Work.LONG):
            result["report"] = str(write_run_report(run.run_dir, result, run.readers))
            trackers.end(result)
    return result


def _figures(run: TrainedRun, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a run and the paths of its files, JSON-able."""
    config, version, run_dir, loop = run.beginning.config, run.dataset.version, run.run_dir, run.loop
    missing = [split for split in OUT_OF_SAMPLE if split not in metrics]
    kind = kind_of(version, config.data.objects)
    notes = [*run.notes, *kind.notes(version), *_of_data_sets(version, run_dir)]
    if config.data.left_out_fold is not None:
        notes.append(
            f"fold {config.data.left_out_fold} of {config.data.folds} of the train split was left out"
        )
    notes += [f"{version.ref} has no {split} split: nothing was measured on it" for split in missing]
    if "validation" in missing:
        notes.append("without validation examples the last model counts as the best")
    return {
        "run_dir": str(run_dir),
        "dataset": version.name,
        "version": version.version,
        **version.describe_view(),
        "model": config.model.name,
        "task": kind.name,
        **kind.described(version),
        "classes": version.manifest.label_names,
        "epochs": loop.progress.epoch,
        "steps": loop.run_step,
        "global_batch_size": config.data.batch_size,
        "metrics": metrics,
        "best_metric": config.run.best_metric,
        "best": loop.progress.best,
        "stopped_early": loop.stopped_early,
        "history": loop.progress.history,
        **{name: round(value, 4) for name, value in loop.rates().items()},
        "export_dir": str(run_dir / "export"),
        "tensorboard_dir": str(run_dir / "logs"),
        "predictions": {split: str(run_dir / predictions_file(split)) for split in metrics},
        "confusion_pictures": {
            split: str(run_dir / f"confusion-{split}.svg")
            for split, figures in metrics.items()
            if "confusion_matrix" in figures
        },
        "notes": notes,
        "unchanged": False,
    }


def _of_data_sets(version: DatasetVersion, run_dir: Path) -> list[str]:
    """Say how several data sets were prepared differently, and which of their records look the same."""
    if not isinstance(version, JoinedVersion):
        return []
    notes, file = version.differences, run_dir / NEAR_DUPLICATES_FILE
    if file.is_file() and (found := between_in_words(pq.read_table(file))) is not None:
        left_out = ", and were left out" if version.reference.drops_near else ""
        notes.append(f"{found}{left_out}: {file.name} names them")
    return notes


def _about_model(run: TrainedRun) -> dict[str, Any]:
    """Return the sizes of the model, the devices and the framework, JSON-able."""
    framework = run.framework
    return {
        "framework": framework.name,
        framework.name: framework.version,
        "image_size": run.model.spec.image_size,
        "num_parameters": run.model.num_parameters,
        "num_replicas": framework.ranks.num_ranks * framework.num_local_replicas,
        "devices": framework.devices,
        "device_peak_bytes": framework.peak_device_bytes(),
    }


def _bad_records(run: TrainedRun) -> list[dict[str, str]]:
    """Return the damaged records that any rank met, each once."""
    of_ranks = run.framework.ranks.all_values(run.dataset.bad_records.to_result())
    found = {(record["id"], record["shard"]): record for of_rank in of_ranks for record in of_rank}
    return list(found.values())
