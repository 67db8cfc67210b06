"""What a search for label errors finds, and ``label-errors.csv``."""

from __future__ import annotations

import csv
import heapq
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from shardmill.infra.storage.filesystem import Storage
from shardmill.training.metrics.evaluation import Rows
from shardmill.training.results.predictions.file import (
    DATA_SET,
    data_set_in,
    kind_in,
    placed,
    read_predictions,
)
from shardmill.training.tasks.annotated import Annotation

LABEL_ERRORS_FILE = "label-errors.csv"
OUT_OF_SAMPLE = ("validation", "test")  # splits that a model has not learned from
LISTED = 10_000
COLUMNS = ("id", "source_uri", "split", "given_label", "suggested_label", "score", "decision", "label")
PLACE = ("id", "source_uri", DATA_SET)  # the columns of predictions that say where a record is from
_PAIRS = 30


class LabelError(NamedTuple):
    """An example whose label is probably wrong.

    Attributes:
        score: how surely, up to 1; comparable within one task.
        id, source_uri, split: of the record.
        given_label, suggested_label: names of classes, or what the task says instead of them.
        data_set: the reference of one of several; empty: there is one.
        annotation: the given and the predicted boxes to draw; None: the labels are words.
    """

    score: float
    id: str
    source_uri: str
    split: str
    given_label: str
    suggested_label: str
    data_set: str = ""
    annotation: Annotation | None = None

    @property
    def place(self) -> str:
        """Its URI, behind its data set where there are several."""
        return placed(self.data_set, self.source_uri)


@dataclass(frozen=True, slots=True)
class LabelErrors:
    """The likely label errors of a run.

    Attributes:
        num_examples: examples that were looked at.
        num_likely: examples that are likely wrong.
        listed: the errors of the highest scores, the likeliest first.
        method: the name of the method.
        meaning: what is said of an example that is likely wrong, as a clause.
        estimated: how many labels the method takes for wrong in all; None: it does not estimate that.
        pairs: (given label, suggested label, likely errors of this kind), the most frequent first.
        are_classes: labels are one class each, and ``prepare`` takes the list as label edits.
        withheld: why nothing is counted, estimated and listed, as a sentence; None: it is.
    """

    num_examples: int
    num_likely: int
    listed: Sequence[LabelError]
    method: str
    meaning: str
    estimated: float | None = None
    pairs: Sequence[tuple[str, str, int]] = ()
    are_classes: bool = False
    withheld: str | None = None

    def to_result(self, file: Path) -> dict[str, Any]:
        """Return the counts and the list in ``file``, JSON-able."""
        if self.withheld is not None:
            return {"num_examples": self.num_examples, "withheld": self.withheld}
        estimated = {} if self.estimated is None else {"estimated": round(self.estimated, 1)}
        return {
            "num_examples": self.num_examples,
            "num_likely": self.num_likely,
            **estimated,
            "meaning": self.meaning,
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
            score, *place, data_set, _ = error
            writer.writerow([*([data_set] if several else []), *place, f"{score:.6f}", "", ""])
        return text.getvalue().encode("utf-8")


def suspect(
    score: float,
    table: pa.Table,
    row: int,
    split: str,
    words: tuple[str, str],
    drawn: Annotation | None = None,
) -> LabelError:
    """Return the error of a row of predictions.

    Args:
        score: see ``LabelError``.
        table: rows with ``PLACE``.
        row: the row.
        split: its split.
        words: the given and the suggested label.
        drawn: the annotation.
    """
    place = (table["id"][row].as_py(), table["source_uri"][row].as_py(), split)
    return LabelError(score, *place, *words, data_set_in(table, row), drawn)


def read_rows(path: Path, names: list[str]) -> Iterator[tuple[pa.Table, Any, Rows]]:
    """Yield a file of predictions in parts, as a table and as labels and predictions of its task.

    Raises:
        CorruptDataError: it is no such file.
    """
    kind = kind_in(path)
    for table in read_predictions(path, [*PLACE, "loss", *kind.fields]):
        yield table, *kind.read(names, table)


def likeliest(errors: list[LabelError]) -> list[LabelError]:
    """Return the errors that are listed, the likeliest first."""
    return heapq.nsmallest(LISTED, errors, key=lambda error: (-error.score, error.id))


def most_frequent(pairs: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Return the pairs of labels that are shown: of the most errors first, none without an error."""
    counted = (pair for pair in pairs if pair[2])
    return heapq.nsmallest(_PAIRS, counted, key=lambda pair: (-pair[2], pair[:2]))
