"""Likely errors of one class an example, by confident learning (Northcutt, Jiang and Chuang 2021).

The threshold of a class is the mean probability that the model gives it over the examples labelled so. An
example is *confidently* of class j if its probability of j reaches the threshold of j; of several such
classes the likeliest counts. The counts of (label, confident class) are the confident joint. Examples off its
diagonal are likely errors, unless the model finds the given label the likeliest of all (as in the library
cleanlab); the rows of the joint, scaled to the number of examples of each label, estimate how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.confusion import ratio
from shardmill.training.results.predictions.file import probabilities_of, read_classes, read_predictions
from shardmill.training.results.predictions.label_errors.found import (
    PLACE,
    LabelError,
    LabelErrors,
    likeliest,
    most_frequent,
    suspect,
)

_METHOD, _MEANING = "confident learning", "the model is confident of another class"


def find(files: Mapping[str, Path]) -> LabelErrors | None:
    """Find likely errors in files of predictions; None if all examples have one label.

    The score is the probability of the suggested class less that of the given one.

    Args:
        files: split -> its file of out-of-sample predictions.
    """
    classes = read_classes(next(iter(files.values())))
    thresholds, counts, hits = _thresholds(files, len(classes))
    if np.count_nonzero(counts) < 2:
        return None
    if (reason := _too_weak(hits, counts)) is not None:
        return LabelErrors(int(counts.sum()), 0, (), _METHOD, _MEANING, withheld=reason)
    num_likely = np.zeros((len(classes), len(classes)), np.int64)
    joint = np.zeros((len(classes), len(classes)), np.int64)
    likely: list[LabelError] = []
    for split, path in files.items():
        for rows in read_predictions(path, [*PLACE, "label_index", "probabilities"]):
            labels, probabilities = rows["label_index"].to_numpy(), probabilities_of(rows)
            confident = _confident_classes(probabilities, thresholds)
            known = confident >= 0
            np.add.at(joint, (labels[known], confident[known]), 1)
            prefers_another = probabilities.argmax(axis=1) != labels
            for row in np.flatnonzero(known & (confident != labels) & prefers_another).tolist():
                num_likely[labels[row], confident[row]] += 1
                given, suggested = int(labels[row]), int(confident[row])
                score = float(probabilities[row, suggested]) - float(probabilities[row, given])
                likely.append(suspect(score, rows, row, split, (classes[given], classes[suggested])))
        likely = likeliest(likely)
    return LabelErrors(
        int(counts.sum()), int(num_likely.sum()), likely, _METHOD, _MEANING,
        _estimated(joint, counts), most_frequent(_pairs(num_likely, classes)), are_classes=True,
    )  # fmt: skip


def _too_weak(hits: Ints, counts: Ints) -> str | None:
    """Return why a model cannot tell wrong labels from its own errors; None: it can.

    Args:
        hits: examples of each class that the model recognises, int64 [C].
        counts: examples of each class.
    """
    present = counts > 0
    recall, chance = float(ratio(hits[present], counts[present]).mean()), 1 / int(present.sum())
    least = (1 + chance) / 2
    if recall >= least:
        return None
    return (
        f"The model recognises {recall:.0%} of the examples of a class on average; below {least:.0%}, "
        f"halfway between chance ({chance:.0%}) and certainty, it cannot tell wrong labels from its own "
        "errors. Train a better model first."
    )


def _pairs(num_likely: Ints, classes: list[str]) -> Iterator[tuple[str, str, int]]:
    for given, suggested in np.argwhere(num_likely).tolist():
        yield classes[given], classes[suggested], int(num_likely[given, suggested])


def _thresholds(files: Mapping[str, Path], num_classes: int) -> tuple[Floats, Ints, Ints]:
    """Return the threshold (infinite without examples), the examples and the hits of each class: [C] each."""
    sums, counts = np.zeros(num_classes), np.zeros(num_classes, np.int64)
    hits = np.zeros_like(counts)
    for path in files.values():
        for rows in read_predictions(path, ["label_index", "probabilities"]):
            labels, probabilities = rows["label_index"].to_numpy(), probabilities_of(rows)
            own = np.take_along_axis(probabilities, labels[:, None].astype(np.int64), axis=1)[:, 0]
            sums += np.bincount(labels, own, num_classes)
            counts += np.bincount(labels, minlength=num_classes)
            hits += np.bincount(labels[probabilities.argmax(axis=1) == labels], minlength=num_classes)
    return np.where(counts > 0, ratio(sums, counts), np.inf), counts, hits


def _confident_classes(probabilities: npt.NDArray[np.float32], thresholds: Floats) -> Ints:
    """Return the class that each example confidently belongs to: int64 [n], -1 for none."""
    reached = np.where(probabilities >= thresholds, probabilities, -1.0)
    return np.where(reached.max(axis=1) >= 0, reached.argmax(axis=1), -1).astype(np.int64)


def _estimated(joint: Ints, counts: Ints) -> float:
    """Return the sum off the diagonal of the joint, scaled to the examples of each label."""
    shares = ratio(joint, np.broadcast_to(joint.sum(axis=1, keepdims=True), joint.shape))
    return float((shares * counts[:, None]).sum() - (np.diag(shares) * counts).sum())
