"""Likely errors of objects: one is missing, of another class, misplaced, or not there.

The first three are those of ObjectLab (Tkachenko, Thyagarajan and Mueller 2023), which calls them overlooked,
swapped and badly located. Instead of fixed scores each class has a threshold as in confident learning: the
mean score that the model gives the objects of the class that it finds, and at least 0.5. Classes of which it
finds less than half are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats
from shardmill.training.metrics.box_matching import box_overlaps
from shardmill.training.metrics.confusion import ratio
from shardmill.training.results.predictions.file import kind_in, read_classes
from shardmill.training.results.predictions.label_errors.found import (
    LabelError,
    LabelErrors,
    likeliest,
    most_frequent,
    read_rows,
    suspect,
)

_METHOD, _MEANING = "ObjectLab's kinds", "an object is missing, of another class, misplaced, or not there"
_SAME, _APART = 0.5, 0.1  # overlaps: from here on the same object, and below none of its
_SURE, _UNSEEN = 0.5, 0.1  # scores: least threshold of a class, and the most where nothing is seen
_LEAST_FOUND = 0.5
_WITHHELD = (
    f"The model finds less than {_LEAST_FOUND:.0%} of the objects of every class, so it cannot tell wrong "
    "boxes from its own errors. Train a better model first."
)


class _Image(NamedTuple):
    """What is annotated and what is found in an image.

    Attributes:
        boxes, classes: of m objects, without crowds: [m, 4], [m].
        found, kinds, scores: of k found boxes: [k, 4], [k], [k]. Oriented boxes have 8 numbers.
        overlaps: of found boxes and objects, float64 [k, m].
        in_crowd: bool [k], most of the box lies in a crowd of its class, so nothing is known of it.
    """

    boxes: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    found: npt.NDArray[Any]
    kinds: npt.NDArray[Any]
    scores: npt.NDArray[Any]
    overlaps: Floats
    in_crowd: npt.NDArray[np.bool_]


class _Error(NamedTuple):
    """An error: its score, the given and the suggested class as text, and what people read."""

    score: float
    given: str
    suggested: str
    words: str


class _Classes(NamedTuple):
    """What the model knows of C classes: their names, thresholds and the share that it finds, [C] each."""

    names: list[str]
    thresholds: Floats
    recall: Floats

    def is_known(self, kind: int) -> bool:
        return bool(self.recall[kind] >= _LEAST_FOUND)


def find(files: Mapping[str, Path]) -> LabelErrors | None:
    """Find likely errors in files of predictions; None without objects.

    An example is an image, and its score that of its surest error: the score of a missing object or one of
    another class (less that of its own), of a misplaced one times the part that does not overlap, and of one
    that is not there the share of its class that the model finds, less what it sees there.

    Args:
        files: split -> its file of out-of-sample predictions.
    """
    names = read_classes(next(iter(files.values())))
    classes, num_examples = _learned(files, names)
    if classes is None:
        return None
    if not (classes.recall >= _LEAST_FOUND).any():
        return LabelErrors(num_examples, 0, (), _METHOD, _MEANING, withheld=_WITHHELD)
    likely: list[LabelError] = []
    num_likely, pairs = 0, Counter[tuple[str, str]]()
    for split, path in files.items():
        kind = kind_in(path)
        for table, labels, rows in read_rows(path, names):
            for row in range(len(table)):
                errors = _errors(_image(labels, rows, row), classes)
                if not errors:
                    continue
                num_likely += 1
                pairs.update((error.given, error.suggested) for error in errors)
                words = (kind.label_words(names, labels, row), "; ".join(error.words for error in errors))
                score = max(error.score for error in errors)
                drawn = kind.annotation(len(names), labels, rows, row)
                likely.append(suspect(score, table, row, split, words, drawn))
            likely = likeliest(likely)
    counted = most_frequent((*pair, number) for pair, number in pairs.items())
    return LabelErrors(num_examples, num_likely, likely, _METHOD, _MEANING, None, counted)


def _learned(files: Mapping[str, Path], names: list[str]) -> tuple[_Classes | None, int]:
    """Return what the model knows of each class, None if there are no objects; and the number of images."""
    sums, hits, counts = np.zeros(len(names)), np.zeros(len(names)), np.zeros(len(names))
    num_examples = 0
    for path in files.values():
        for table, labels, rows in read_rows(path, names):
            num_examples += len(table)
            for row in range(len(table)):
                image = _image(labels, rows, row)
                own = image.kinds[:, np.newaxis] == image.classes
                best = np.where(own & (image.overlaps >= _SAME), image.scores[:, np.newaxis], 0.0)
                best = best.max(axis=0, initial=0.0)
                is_hit = best >= _SURE
                counts += np.bincount(image.classes, minlength=len(names))
                hits += np.bincount(image.classes[is_hit], minlength=len(names))
                sums += np.bincount(image.classes[is_hit], best[is_hit], minlength=len(names))
    thresholds = np.maximum(ratio(sums, hits), _SURE)
    return (_Classes(names, thresholds, ratio(hits, counts)) if counts.any() else None), num_examples


def _image(labels: Any, rows: Any, row: int) -> _Image:
    is_object, is_found = labels["classes"][row] >= 0, rows["classes"][row] >= 0
    is_crowd = labels["crowds"][row] & is_object
    is_own = is_object & ~is_crowd
    boxes, found = labels["boxes"][row][is_own], rows["boxes"][row][is_found]
    crowds, kinds = labels["boxes"][row][is_crowd], rows["classes"][row][is_found]
    covered = box_overlaps(found, crowds, np.ones(len(crowds), np.bool_))
    covered[kinds[:, np.newaxis] != labels["classes"][row][is_crowd]] = 0.0
    return _Image(
        boxes, labels["classes"][row][is_own], found,
        kinds, rows["scores"][row][is_found].astype(np.float64),
        box_overlaps(found, boxes, np.zeros(len(boxes), np.bool_)), covered.max(axis=1, initial=0.0) >= _SAME,
    )  # fmt: skip


def _errors(image: _Image, classes: _Classes) -> list[_Error]:
    """Return the likely errors of an image."""
    errors = [*_missing(image, classes)]
    for number, kind in enumerate(image.classes.tolist()):
        if error := _of_object(image, classes, number, kind):
            errors.append(error)
    return errors


def _missing(image: _Image, classes: _Classes) -> Iterator[_Error]:
    """Yield objects that the model is sure of, and that nobody has annotated."""
    taken: list[int] = []
    for number in np.argsort(-image.scores, kind="stable").tolist():
        kind, score = int(image.kinds[number]), float(image.scores[number])
        if not classes.is_known(kind) or score < classes.thresholds[kind] or image.in_crowd[number]:
            continue
        same = box_overlaps(image.found[taken], image.found[number][np.newaxis], np.zeros(1, np.bool_))
        if image.overlaps[number].max(initial=0.0) < _APART and same.max(initial=0.0) < _SAME:
            taken.append(number)
            yield _Error(score, "none", classes.names[kind], f"{classes.names[kind]} is missing")


def _of_object(image: _Image, classes: _Classes, number: int, kind: int) -> _Error | None:
    """Return the likely error of an annotated object, if there is one."""
    overlaps, scores, name = image.overlaps[:, number], image.scores, classes.names[kind]
    near = overlaps >= _SAME
    own = float(scores[near & (image.kinds == kind)].max(initial=0.0))
    sure = np.array([classes.is_known(one) for one in image.kinds.tolist()], np.bool_)
    sure &= (scores >= classes.thresholds[image.kinds]) & ~image.in_crowd
    others = _unexplained(image, near & sure & (image.kinds != kind) & (scores > own), number)
    if others:
        best = max(others, key=lambda one: float(scores[one]))
        suggested = classes.names[int(image.kinds[best])]
        return _Error(float(scores[best]) - own, name, suggested, f"{name} is rather {suggested}")
    if not classes.is_known(kind) or own >= _SURE:
        return None
    about = _unexplained(image, sure & (image.kinds == kind) & (overlaps >= _APART) & ~near, number)
    if about:
        best = max(about, key=lambda one: float(overlaps[one]))
        score = float(scores[best]) * (1.0 - float(overlaps[best]))
        return _Error(score, name, f"{name} elsewhere", f"{name} is misplaced")
    seen = float(scores[overlaps >= _APART].max(initial=0.0))
    if seen < _UNSEEN:
        return _Error(float(classes.recall[kind]) - seen, name, "none", f"{name} is not there")
    return None


def _unexplained(image: _Image, chosen: npt.NDArray[np.bool_], number: int) -> list[int]:
    """Return the found boxes that are chosen and are no other object of their class than ``number``."""
    same = (image.classes == image.kinds[:, np.newaxis]) & (image.overlaps >= _SAME)
    same[:, number] = False
    return np.flatnonzero(chosen & ~same.any(axis=1)).tolist()
