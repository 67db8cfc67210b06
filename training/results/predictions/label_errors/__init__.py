"""Likely label errors in predictions that are out of sample: a method of the literature for each task.

Those of the validation and test splits are out of sample. For the train split
``shardmill.training.label_errors`` trains K models, each without one fold, which it then predicts.

A model that is nearer to guessing than to knowing blames the labels for its own errors, so its findings are
withheld, class by class or number by number where the task has several.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shardmill.training.results.predictions.file import kind_in
from shardmill.training.results.predictions.label_errors import (
    detection,
    multi_label,
    regression,
    single_label,
)
from shardmill.training.results.predictions.label_errors.found import LabelErrors

_METHODS: Final = {
    "single-label": single_label.find,
    "multi-label": multi_label.find,
    "regression": regression.find,
    "detection": detection.find,
    "oriented-detection": detection.find,
}


def has_method(task: str) -> bool:
    """Return whether label errors of a task are looked for."""
    return task in _METHODS


def find_label_errors(files: Mapping[str, Path]) -> LabelErrors | None:
    """Find likely label errors in files of predictions.

    Args:
        files: split -> its file of out-of-sample predictions, all of one task.

    Returns:
        The errors; None without any file, for a task without a method, and if all labels are the same.

    Raises:
        CorruptDataError: one is no such file.
    """
    if not files:
        return None
    method = _METHODS.get(kind_in(next(iter(files.values()))).name)
    return None if method is None else method(files)
