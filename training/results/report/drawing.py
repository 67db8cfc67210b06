"""Draw the page of a run again from its files, also while it is unfinished. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import parse_joined
from shardmill.infra.errors import DataError, NotFoundError
from shardmill.infra.format.contract import SPLITS
from shardmill.infra.readable import counted
from shardmill.training.reading import RecordReader, load_table, open_records
from shardmill.training.results.predictions.figures import figures_of
from shardmill.training.results.predictions.file import predictions_file
from shardmill.training.results.report.writing import write_run_report
from shardmill.training.results.run_files.history import read_history
from shardmill.training.results.run_files.run_folder import RunFolder


def draw_run_report(run: RunFolder, root: str | Path) -> Path:
    """Draw ``report.html`` of a run again, with every split that has a file of predictions.

    Args:
        run: the run; of an unfinished one the page has what is known so far.
        root: the folder of the datasets. Without the run's version there are no pictures of examples.

    Returns:
        The path of the page.

    Raises:
        DataError: the run has not begun to train. CorruptDataError: one of its files is damaged.
    """
    if not run.environment_file.is_file():
        raise DataError(
            f"the run {run.name} has nothing to show: it has no {run.environment_file.name}",
            "run the same training again: it writes that file when it begins",
        )
    try:
        version: DatasetVersion | None = Catalog(root).open_view(run.dataset)
    except NotFoundError:
        version = None
    result = {**(_so_far(run) if run.result is None else run.result)}
    if version is None:
        note = f"{run.dataset} is not under {root}: examples are shown without pictures"
        result["notes"] = [*result["notes"], note]
    result["metrics"] = _metrics(run, result["metrics"])
    if run.result is None and result["metrics"]:
        figures = next(iter(result["metrics"].values()))
        result["classes"] = list(figures.get("per_class", figures.get("per_target", ())))
    readers = {} if version is None else _readers(version, list(result["metrics"]))
    try:
        return write_run_report(run.path, result, readers)
    finally:
        for reader in readers.values():
            reader.close()


def _metrics(run: RunFolder, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of each split: those of the result, and those of later evaluations."""
    found = dict(known)
    for split in SPLITS:
        path = run.path / predictions_file(split)
        if split not in found and path.is_file():
            found[split] = figures_of(path)
    return found


def _readers(version: DatasetVersion, splits: list[str]) -> dict[str, RecordReader]:
    return {split: open_records(version, load_table(version, split)) for split in splits}


def _so_far(run: RunFolder) -> dict[str, Any]:
    """Return what the page needs of a run without a result."""
    history, settings = read_history(run.path), run.config()
    parts = parse_joined(run.dataset).parts
    joined = {} if len(parts) == 1 else {"joined": run.dataset}
    return {
        "model": run.model,
        "dataset": run.dataset_name,
        "version": run.dataset_version,
        **joined,
        "classes": [],
        "epochs": len(history),
        "steps": history[-1]["step"] if history else 0,
        "global_batch_size": settings["data"]["global_batch_size"],
        "num_parameters": None,
        "best": None,
        "history": history,
        "metrics": {},
        "notes": [f"the run is unfinished: {len(history)} of {counted(run.epochs_wanted, 'epoch')} are done"],
    }
