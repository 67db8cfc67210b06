"""Likely errors of numbers: those that lie far from what the model predicts, by the spread of its errors.

The distance of an example is that of its error from the median error of the number, in robust standard
deviations (1.4826 times the median absolute deviation, which errors in less than half of the labels hardly
move). Beyond 3.5 it is an outlier (Iglewicz and Hoaglin: How to detect and handle outliers, 1993). Numbers
that the model explains less than half of are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shardmill.training.arrays import Floats
from shardmill.training.results.predictions.file import (
    kind_in,
    num_predictions,
    read_classes,
)
from shardmill.training.results.predictions.label_errors.found import (
    LabelError,
    LabelErrors,
    likeliest,
    most_frequent,
    read_rows,
    suspect,
)

_METHOD, _MEANING = "robust residuals", "a number lies far from what the model predicts"
_FAR = 3.5  # robust standard deviations
_TO_DEVIATION = 1.4826  # of a median absolute deviation, if errors are normal
_LEAST_EXPLAINED = 0.5
_WITHHELD = (
    f"The model explains less than {_LEAST_EXPLAINED:.0%} of the spread of every number, so it cannot tell "
    "wrong numbers from its own errors. Train a better model first."
)


def find(files: Mapping[str, Path]) -> LabelErrors | None:
    """Find likely errors in files of predictions; None without examples.

    The score is 1 - 3.5 / distance, of the number that is farthest off: above 0, up to 1.

    Args:
        files: split -> its file of out-of-sample predictions.
    """
    names = read_classes(next(iter(files.values())))
    given, predicted = _numbers(files, len(names))
    if not len(given):
        return None
    errors = given - predicted
    middle, spread = _robust(errors)
    of_labels = _robust(given)[1]
    of_labels = np.where(of_labels > 0, of_labels, given.std(axis=0))  # most have the same number
    explained = 1.0 - np.square(np.divide(spread, of_labels, out=np.ones_like(spread), where=of_labels > 0))
    is_known = explained >= _LEAST_EXPLAINED
    if not is_known.any():
        return LabelErrors(len(given), 0, (), _METHOD, _MEANING, withheld=_WITHHELD)
    distances = np.zeros_like(errors)
    # Without spread most examples are predicted exactly: then no distance has a meaning.
    np.divide(np.abs(errors - middle), spread, out=distances, where=is_known & (spread > 0))
    is_far = distances > _FAR
    likely: list[LabelError] = []
    done = 0
    for split, path in files.items():
        kind = kind_in(path)
        for table, labels, rows in read_rows(path, names):
            for row in np.flatnonzero(is_far[done : done + len(labels)].any(axis=1)).tolist():
                suggested = np.where(is_far[done + row], rows["predicted"][row], labels[row])
                words = [kind.label_words(names, one[np.newaxis], 0) for one in (labels[row], suggested)]
                score = 1.0 - _FAR / float(distances[done + row].max())
                likely.append(suspect(score, table, row, split, (words[0], words[1])))
            done += len(labels)
        likely = likeliest(likely)
    counts = zip(names, is_far.sum(axis=0).tolist(), strict=True)
    pairs = most_frequent((f"{name} as given", f"{name} as predicted", number) for name, number in counts)
    return LabelErrors(len(given), int(is_far.any(axis=1).sum()), likely, _METHOD, _MEANING, None, pairs)


def _numbers(files: Mapping[str, Path], num_targets: int) -> tuple[Floats, Floats]:
    """Return the given and the predicted numbers of all examples: float64 [N, T] each."""
    size = sum(map(num_predictions, files.values()))
    given, predicted = np.empty((size, num_targets)), np.empty((size, num_targets))
    done = 0
    for path in files.values():
        for _, labels, rows in read_rows(path, read_classes(path)):
            given[done : done + len(labels)], predicted[done : done + len(labels)] = labels, rows["predicted"]
            done += len(labels)
    return given, predicted


def _robust(values: Floats) -> tuple[Floats, Floats]:
    """Return the median and the robust standard deviation of each column: float64 [T] each."""
    middle = np.median(values, axis=0)
    return middle, _TO_DEVIATION * np.median(np.abs(values - middle), axis=0)
