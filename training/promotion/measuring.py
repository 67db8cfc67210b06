"""Measure champion and candidate on the same records of a split, without those that either was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError, NotFoundError
from shardmill.infra.processes.children import run_child
from shardmill.infra.processes.python_module import python_module
from shardmill.infra.readable import counted
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.promotion.verdict import Measured
from shardmill.training.results.predictions.comparison import compare
from shardmill.training.results.predictions.file import read_all
from shardmill.training.results.run_files.run_folder import RunFolder

EVALUATE: tuple[str, ...] = tuple(python_module("shardmill.training.evaluate"))

# The splits whose records do not count. A model learned from train. Validation chose the best epoch of
# both models alike, so it can compare them.
_SEEN = {"validation": ("train",), "test": ("train", "validation")}

Ids = npt.NDArray[np.bytes_]  # [N], 16 hexadecimal digits each


def measure(
    champion: RunFolder,
    candidate: RunFolder,
    version: DatasetVersion,
    split: str,
    root: str,
    rules: PromotionRules,
) -> Measured:
    """Compare two runs on a split of a version, and evaluate them on it first where that is missing.

    Records that one of them has learned from do not count: a record of this split may have been in another
    split of an earlier version, if the source gives the splits.

    Args:
        champion: the run that has the alias.
        candidate: the run that may take it over.
        version: the dataset version.
        split: "validation" or "test".
        root: the folder of the datasets.
        rules: the rules of the comparison.

    Raises:
        UsageError, DataError: they cannot be compared, or on too few records.
    """
    if not version.shards(split):
        raise DataError(
            f"{version.ref} has no {split} split",
            "prepare it with one, or name the split that decides: --set split=validation or split=test",
        )
    tested = _ids(version, split)
    seen = {run.name: _seen(run, version, split, root) for run in (champion, candidate)}
    known = [ids for ids in seen.values() if ids is not None]
    fair = tested[~np.isin(tested, np.concatenate(known))] if known else tested
    if fair.size < rules.minimum_examples:
        raise DataError(
            f"{version.ref} has {counted(fair.size, f'{split} record')} that neither run has learned from; "
            f"minimum_examples = {rules.minimum_examples}",
            f"prepare with a larger {split} split, or lower minimum_examples",
        )
    first, second = (_predictions(run, version.ref, split, fair, root) for run in (champion, candidate))
    events.stage("compare", int(fair.size), unit="records")
    found = compare(first, second, fair, rules.confidence)
    unknown = tuple(name for name, ids in seen.items() if ids is None)
    return Measured(version.ref, split, found, tested.size - fair.size, unknown)


def _seen(run: RunFolder, version: DatasetVersion, split: str, root: str) -> Ids | None:
    """Return the ids of the records that a run knows and that do not count; None: unknown."""
    if run.dataset == version.ref:
        return np.array([], "S16")  # its splits have no record in common
    try:
        trained_on = Catalog(root).open_view(run.dataset)
    except NotFoundError:
        return None
    return np.concatenate([_ids(trained_on, seen) for seen in _SEEN[split]])


def _ids(version: DatasetVersion, split: str) -> Ids:
    columns = [version.rows(shard, ["id"])["id"] for shard in version.shards(split)]
    found: list[str] = [] if not columns else pa.chunked_array(columns, pa.string()).to_pylist()
    return np.array(found, "S16")


def _predictions(run: RunFolder, ref: str, split: str, wanted: Ids, root: str) -> Path:
    """Return the predictions of a run on a split of a version; evaluate it first if records lack one."""
    try:
        path = run.predictions(split, ref)
        if np.isin(wanted, np.array(read_all(path, ["id"])["id"].to_pylist(), "S16")).all():
            return path
    except NotFoundError:
        pass
    command = [*EVALUATE, str(run.path), "--split", split, "--dataset", ref, "--root", root]
    run_child(command, on_event=_relay, on_line=_relay_line).reported()
    return run.predictions(split, ref)


def _relay(event: Mapping[str, Any]) -> None:
    """Pass on the progress of an evaluation; its result and its error are not those of this job."""
    if event.get("event") in ("stage", "progress", "log"):
        events.emit(dict(event))


def _relay_line(line: str) -> None:
    if line.strip():
        print(line, flush=True)
