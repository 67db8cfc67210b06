"""Likely label errors by confident learning (Northcutt, Jiang and Chuang 2021).

The threshold of a class is the mean probability that the model gives it over the examples labelled so. An
example is *confidently* of class j if its probability of j reaches the threshold of j; of several such
classes the likeliest counts. The counts of (label, confident class) are the confident joint. Examples off its
diagonal are likely errors, unless the model finds the given label the likeliest of all (as in the library
cleanlab); the rows of the joint, scaled to the number of examples of each label, estimate how many there are.

A model that is nearer to guessing than to knowing blames the labels for its own errors, so its findings are
withheld: its mean recall must be at least halfway between chance and 1.

The probabilities must be out of sample: those of the validation and test splits are. For the train split
``shardmill.training.label_errors`` trains K models, each without one fold, which it then predicts.
"""

from __future__ import annotations

import csv
import heapq
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.infra.storage.filesystem import Storage
from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.confusion import ratio
from shardmill.training.results.predictions.file import (
    DATA_SET,
    data_set_in,
    placed,
    probabilities_of,
    read_classes,
    read_predictions,
)

LABEL_ERRORS_FILE = "label-errors.csv"
OUT_OF_SAMPLE = ("validation", "test")  # splits that a model has not learned from
LISTED = 10_000
_PAIRS = 30
COLUMNS = ("id", "source_uri", "split", "given_label", "suggested_label", "score", "decision", "label")


class LabelError(NamedTuple):
    """An example whose label is probably wrong.

    Attributes:
        score: probability of the suggested class less that of the given one, up to 1.
        id, source_uri, split: of the record.
        given_label, suggested_label: names of classes.
        data_set: the reference of one of several; empty: there is one.
    """

    score: float
    id: str
    source_uri: str
    split: str
    given_label: str
    suggested_label: str
    data_set: str = ""

    @property
    def place(self) -> str:
        """Its URI, behind its data set where there are several."""
        return placed(self.data_set, self.source_uri)


@dataclass(frozen=True, slots=True)
class LabelErrors:
    """The likely label errors of a run.

    Attributes:
        num_examples: examples that were looked at.
        num_likely: examples off the diagonal of the confident joint.
        estimated: the number of errors that the confident joint estimates.
        listed: the errors of the highest scores, the likeliest first.
        pairs: (given label, suggested label, likely errors of this kind), the most frequent first.
        withheld: why nothing is counted, estimated and listed, as a sentence; None: it is.
    """

    num_examples: int
    num_likely: int
    estimated: float
    listed: Sequence[LabelError]
    pairs: Sequence[tuple[str, str, int]] = ()
    withheld: str | None = None

    def to_result(self, file: Path) -> dict[str, Any]:
        """Return the counts and the list in ``file``, JSON-able."""
        if self.withheld is not None:
            return {"num_examples": self.num_examples, "withheld": self.withheld}
        return {
            "num_examples": self.num_examples,
            "num_likely": self.num_likely,
            "estimated": round(self.estimated, 1),
            "file": str(file),
        }

    def write_csv(self, folder: Storage) -> None:
        """Write ``label-errors.csv``, or remove it if the errors are withheld."""
        if self.withheld is None:
            folder.write_atomic(LABEL_ERRORS_FILE, self.to_csv())
        else:
            folder.delete(LABEL_ERRORS_FILE)

    def to_csv(self) -> bytes:
        """Return the listed errors as CSV (UTF-8): ``COLUMNS``, and of several data sets which one.

        The last two columns are empty. A person fills them, and ``prepare`` reads them as label edits.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        several = any(error.data_set for error in self.listed)
        writer.writerow([*([DATA_SET] if several else []), *COLUMNS])
        for error in self.listed:
            score, *place, data_set = error
            writer.writerow([*([data_set] if several else []), *place, f"{score:.6f}", "", ""])
        return text.getvalue().encode("utf-8")


def find_label_errors(files: dict[str, Path]) -> LabelErrors | None:
    """Find likely label errors in files of predictions.

    Args:
        files: split -> its file of out-of-sample predictions.

    Returns:
        The errors; None without any file, or if all examples have one label.
    """
    if not files:
        return None
    classes = read_classes(next(iter(files.values())))
    thresholds, counts, hits = _thresholds(files, len(classes))
    if np.count_nonzero(counts) < 2:
        return None
    if (reason := _too_weak(hits, counts)) is not None:
        return LabelErrors(int(counts.sum()), 0, 0.0, (), withheld=reason)
    num_likely = np.zeros((len(classes), len(classes)), np.int64)
    joint = np.zeros((len(classes), len(classes)), np.int64)
    likely: list[LabelError] = []
    for split, path in files.items():
        for rows in read_predictions(path, ["id", "source_uri", DATA_SET, "label_index", "probabilities"]):
            labels, probabilities = rows["label_index"].to_numpy(), probabilities_of(rows)
            confident = _confident_classes(probabilities, thresholds)
            known = confident >= 0
            np.add.at(joint, (labels[known], confident[known]), 1)
            prefers_another = probabilities.argmax(axis=1) != labels
            for row in np.flatnonzero(known & (confident != labels) & prefers_another).tolist():
                num_likely[labels[row], confident[row]] += 1
                given, suggested = int(labels[row]), int(confident[row])
                score = float(probabilities[row, suggested]) - float(probabilities[row, given])
                place = (rows["id"][row].as_py(), rows["source_uri"][row].as_py(), split)
                names = classes[given], classes[suggested], data_set_in(rows, row)
                likely.append(LabelError(score, *place, *names))
        likely = _likeliest(likely)
    pairs = heapq.nsmallest(_PAIRS, _pairs(num_likely, classes), key=lambda pair: (-pair[2], pair[:2]))
    return LabelErrors(int(counts.sum()), int(num_likely.sum()), _estimated(joint, counts), likely, pairs)


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


def _likeliest(errors: list[LabelError]) -> list[LabelError]:
    return heapq.nsmallest(LISTED, errors, key=lambda error: (-error.score, error.id))


def _thresholds(files: dict[str, Path], num_classes: int) -> tuple[Floats, Ints, Ints]:
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
