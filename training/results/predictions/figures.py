"""The figures of a split, computed again from its file of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shardmill.infra.storage.locations import name_of
from shardmill.training.results.predictions.file import columns_of, read_classes, read_predictions


def figures_of(path: Path) -> dict[str, Any]:
    """Return the figures of a file of predictions, as they stand under ``metrics`` in the result of a run.

    Raises:
        CorruptDataError: it is no such file.
    """
    columns, names = columns_of(path), read_classes(path)
    tally = columns.tally(len(names))
    for table in read_predictions(path, ["loss", *columns.fields]):
        tally.add(*columns.read(names, table))
    return tally.evaluation().to_result([name_of(uri) for uri in names])
