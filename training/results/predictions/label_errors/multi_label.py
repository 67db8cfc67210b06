"""Likely errors of several classes an example: confident learning, a class at a time.

Each class is a question of its own, shown or not shown. The threshold of an answer is the mean probability
that the model gives it over the examples that have it, and the confident answer is found as for one class
an example (Northcutt, Jiang and Chuang 2021; Thyagarajan et al. 2022). Of an example that is likely wrong
all classes that are, are turned in the suggestion. Classes that the model hardly knows are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.confusion import ratio
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

_METHOD, _MEANING = (
    "confident learning",
    "the model is confident that a class is shown or not shown, and the label says otherwise",
)
_LEAST_RECALL = 0.75  # halfway between chance and certainty for the two answers
_WITHHELD = (
    "The model tells no class well enough from its absence: the mean recall of both answers is below "
    f"{_LEAST_RECALL:.0%} everywhere, so it cannot tell wrong labels from its own errors. Train a better "
    "model first."
)


class _Answers(NamedTuple):
    """The two answers to each of C classes, not shown and shown.

    Attributes:
        thresholds: float64 [2, C]; infinite for an answer that no example has.
        counts: int64 [2, C], the examples that have it.
        is_known: bool [C], the model knows both answers well enough.
    """

    thresholds: Floats
    counts: Ints
    is_known: npt.NDArray[np.bool_]


def find(files: Mapping[str, Path]) -> LabelErrors | None:
    """Find likely errors in files of predictions; None if every class has one answer in all examples.

    The score is that of the surest error of an example: the probability of the suggested answer less that
    of the given one.

    Args:
        files: split -> its file of out-of-sample predictions.
    """
    names = read_classes(next(iter(files.values())))
    answers = _answers(files, len(names))
    num_examples = sum(map(num_predictions, files.values()))
    if not (answers.counts > 0).all(axis=0).any():
        return None
    if not answers.is_known.any():
        return LabelErrors(num_examples, 0, (), _METHOD, _MEANING, withheld=_WITHHELD)
    likely: list[LabelError] = []
    num_likely, turned = 0, np.zeros((2, len(names)), np.int64)
    joint = np.zeros((2, 2, len(names)), np.int64)  # given answer, confident answer, class
    for split, path in files.items():
        kind = kind_in(path)
        for table, labels, rows in read_rows(path, names):
            given, is_told, shares = labels > 0.5, ~np.isnan(labels), _shares(rows["probabilities"])
            reached = np.where(shares >= answers.thresholds, shares, -1.0)
            is_sure, confident = is_told & (reached.max(axis=1) >= 0), reached.argmax(axis=1) == 1
            for answer in (0, 1):
                for sure in (0, 1):
                    at = is_sure & (given == bool(answer)) & (confident == bool(sure))
                    joint[answer, sure] += at.sum(axis=0)
            is_wrong = answers.is_known & is_sure & (confident != given) & ((shares[:, 1] > 0.5) != given)
            turned += [(is_wrong & ~given).sum(axis=0), (is_wrong & given).sum(axis=0)]
            gains = np.where(is_wrong, np.abs(shares[:, 1] - shares[:, 0]), 0.0).max(axis=1, initial=0.0)
            found = np.flatnonzero(is_wrong.any(axis=1)).tolist()
            num_likely += len(found)
            for row in found:
                words = [kind.label_words(names, one, row) for one in (given, given ^ is_wrong)]
                likely.append(suspect(float(gains[row]), table, row, split, (words[0], words[1])))
        likely = likeliest(likely)
    estimated = _estimated(joint[..., answers.is_known], answers.counts[:, answers.is_known])
    return LabelErrors(
        num_examples, num_likely, likely, _METHOD, _MEANING, estimated, most_frequent(_pairs(turned, names))
    )


def _answers(files: Mapping[str, Path], num_classes: int) -> _Answers:
    sums, counts = np.zeros((2, num_classes)), np.zeros((2, num_classes), np.int64)
    hits = np.zeros_like(counts)
    for path in files.values():
        names = read_classes(path)
        for _, labels, rows in read_rows(path, names):
            shares = _shares(rows["probabilities"])
            for answer in (0, 1):
                has = labels == answer  # NaN: nobody has looked for the class
                sums[answer] += np.where(has, shares[:, answer], 0.0).sum(axis=0)
                counts[answer] += has.sum(axis=0)
                hits[answer] += (has & ((shares[:, 1] > 0.5) == bool(answer))).sum(axis=0)
    both = (counts > 0).all(axis=0)
    is_known = both & (ratio(hits, counts).mean(axis=0) >= _LEAST_RECALL)
    return _Answers(np.where(counts > 0, ratio(sums, counts), np.inf), counts, is_known)


def _shares(probabilities: npt.NDArray[np.float32]) -> Floats:
    """Return the probabilities of both answers: float64 [n, 2, C]."""
    shown = probabilities.astype(np.float64)
    return np.stack([1.0 - shown, shown], axis=1)


def _estimated(joint: Ints, counts: Ints) -> float:
    """Return the errors that the joints estimate, each scaled to the examples of each answer."""
    off = np.stack([joint[0, 1], joint[1, 0]])
    return float((ratio(off, joint.sum(axis=1)) * counts).sum())


def _pairs(turned: Ints, names: list[str]) -> Iterator[tuple[str, str, int]]:
    for name, added, removed in zip(names, *turned.tolist(), strict=True):
        yield f"not {name}", name, added
        yield name, f"not {name}", removed
