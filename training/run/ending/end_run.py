"""End a run, with any framework: evaluate its best model, export it, and write the report. No TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.training.dataset import Dataset
from shardmill.training.ranks.heartbeat import Work
from shardmill.training.ranks.peers import Peers
from shardmill.training.reading import RecordReader
from shardmill.training.results.predictions.label_errors import OUT_OF_SAMPLE
from shardmill.training.results.report.writing import write_run_report
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.beginning import Beginning
from shardmill.training.run.ending.common_result import EndedLoop, common_result
from shardmill.training.run.ending.source_check import Written, check_on_sources, checked_on, notes_on
from shardmill.training.run.evaluating.final_evaluation import (
    evaluate_left_out,
    evaluate_splits,
    write_label_errors,
)
from shardmill.training.run.evaluating.interface import SplitEvaluator
from shardmill.training.run.sharing.balance_record import BalanceRecord
from shardmill.training.run.stopping.interruption import StopFlag


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run whose best model is in memory.

    Attributes:
        run_dir: its folder.
        beginning: what it followed and learned from.
        dataset: the dataset version.
        readers: the records of each split.
        ranks: the ranks that trained together.
        balance: what each of them did; None: there was one.
        loop: the loop at its end.
        evaluator: evaluates the best model.
        notes: what a reader of the result should know.
    """

    run_dir: Path
    beginning: Beginning
    dataset: Dataset
    readers: Mapping[str, RecordReader]
    ranks: Peers
    balance: BalanceRecord | None
    loop: EndedLoop
    evaluator: SplitEvaluator
    notes: list[str]


def end_run(
    run: TrainedRun,
    export: Callable[[], Written],
    describe: Callable[[], dict[str, Any]],
    stop: StopFlag,
    trackers: Trackers,
) -> dict[str, Any]:
    """Evaluate and export the best model of a run, and report. Every rank must call this.

    Args:
        run: the run.
        export: writes the model in all its forms, on rank 0.
        describe: returns the figures of the result that only the framework knows.
        stop: asks the run to stop.
        trackers: other systems that are told about the run.

    Returns:
        The result, JSON-able; of ranks other than the first only parts of it are of use.

    Raises:
        Cancelled: stopped on request.
    """
    config, records = run.beginning.config, run.beginning.records
    splits = [*OUT_OF_SAMPLE, "train"] if config.run.evaluate_train else OUT_OF_SAMPLE
    evaluated = [run.readers[split] for split in splits if split in run.readers]
    metrics = evaluate_splits(run.evaluator, evaluated, run.run_dir, stop.check)
    left_out = None
    if records.left_out is not None:
        unseen = run.readers["train"], records.left_out
        left_out = evaluate_left_out(run.evaluator, *unseen, run.run_dir, stop.check)
    label_errors = write_label_errors(run.run_dir)

    # The last time that ranks meet: rank 0 goes on alone, for as long as it takes.
    stop.check()
    bad_records = _bad_records(run)
    events.stage("export", 1, unit="models")
    exports = on_sources = None
    if run.ranks.is_first:
        with stop.during(Work.LONG):
            written = export()
            exports = written.forms
            on_sources = check_on_sources(written, checked_on(run.readers), run.run_dir)
    events.progress("export", 1, 1, unit="models")

    result = {
        **common_result(config, run.dataset.version, run.run_dir, run.loop, metrics, run.notes),
        **describe(),
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
    if run.ranks.is_first:
        with stop.during(Work.LONG):
            result["report"] = str(write_run_report(run.run_dir, result, run.readers))
            trackers.end(result)
    return result


def _bad_records(run: TrainedRun) -> list[dict[str, str]]:
    """Return the damaged records that any rank met, each once."""
    of_ranks = run.ranks.all_values(run.dataset.bad_records.to_result())
    return list({record["id"]: record for of_rank in of_ranks for record in of_rank}.values())
