"""Collect what the page of a run shows, and write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.reading import RecordReader
from shardmill.training.results.predictions.figures import scatters_of
from shardmill.training.results.predictions.file import predictions_file
from shardmill.training.results.predictions.hardest import HardExample, find_hardest
from shardmill.training.results.predictions.label_errors import find_label_errors
from shardmill.training.results.predictions.label_errors.found import OUT_OF_SAMPLE, LabelErrors
from shardmill.training.results.report.examples import write_examples
from shardmill.training.results.report.gallery import Thumbnail, read_thumbnails
from shardmill.training.results.report.page import Contents, render_page

REPORT_FILE = "report.html"
_HARDEST, _LABEL_ERRORS = 36, 36


def write_run_report(run_dir: Path, result: Mapping[str, Any], readers: Mapping[str, RecordReader]) -> Path:
    """Write ``report.html`` of a run, and ``examples.json``, the first examples of it.

    Args:
        run_dir: the folder of the run, with its files of predictions and environment.json.
        result: the result of the run.
        readers: split -> its records, for pictures; a split that is missing here has none.

    Returns:
        The path of the page.

    Raises:
        CorruptDataError: a file of predictions is damaged.
    """
    paths = {split: run_dir / predictions_file(split) for split in result["metrics"]}
    files = {split: path for split, path in paths.items() if path.is_file()}
    environment = json.loads((run_dir / "environment.json").read_bytes())
    is_whole = environment["config"].get("data", {}).get("fit") == "stretch"
    events.stage("report", len(files), unit="splits")
    hardest, scatters = {}, {}
    for number, (split, path) in enumerate(files.items(), 1):
        hardest[split] = find_hardest(path, _HARDEST, is_whole=is_whole)
        scatters[split] = scatters_of(path)
        events.progress("report", number, len(files), unit="splits")
    errors = find_label_errors({split: files[split] for split in OUT_OF_SAMPLE if split in files})
    thumbnails = _thumbnails(readers, hardest, errors)
    likely = [] if errors is None else list(errors.listed[:_LABEL_ERRORS])
    write_examples(run_dir, hardest, likely, {key: str(one.picture) for key, one in thumbnails.items()})
    contents = Contents(
        run=run_dir.name,
        result=result,
        environment=environment,
        hardest=hardest,
        label_errors=errors,
        label_errors_shown=likely,
        thumbnails=thumbnails,
        scatters=scatters,
    )
    Storage.at(run_dir).write_atomic(REPORT_FILE, render_page(contents).encode("utf-8"))
    return run_dir / REPORT_FILE


def _thumbnails(
    readers: Mapping[str, RecordReader],
    hardest: Mapping[str, list[HardExample]],
    errors: LabelErrors | None,
) -> dict[str, Thumbnail]:
    found: dict[str, Thumbnail] = {}
    listed = [] if errors is None else errors.listed[:_LABEL_ERRORS]
    for split in hardest.keys() & readers.keys():
        wanted = {example.id: example.source_uri for example in hardest[split]}
        wanted |= {error.id: error.source_uri for error in listed if error.split == split}
        drawn = {one.id: one.annotation for one in hardest[split] if one.annotation is not None}
        drawn |= {
            one.id: one.annotation for one in listed if one.split == split and one.annotation is not None
        }
        found |= read_thumbnails(readers[split], wanted.items(), drawn)
    return found
