"""Write predictions as CSV, JSON lines or Parquet, a part at a time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from infra.storage.names import uri_of

Format = Literal["csv", "parquet", "json"]
FORMATS: tuple[Format, ...] = ("csv", "parquet", "json")

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("predicted", pa.string()),
        ("probability", pa.float32()),
        ("reason", pa.string()),
        ("message", pa.string()),
        ("probabilities", pa.list_(pa.float32())),
    ]
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction of one file, or the reason why there is none.

    Attributes:
        path: of the file.
        label: the predicted class; None: the file was refused.
        probabilities: of each class; empty: the file was refused.
        reason, message: why it was refused.
    """

    path: str
    label: int | None
    probabilities: Sequence[float]
    reason: str | None = None
    message: str | None = None

    @property
    def probability(self) -> float | None:
        """The probability of the predicted class."""
        return None if self.label is None else self.probabilities[self.label]


class Output(Protocol):
    """Writes predictions in one format."""

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Write a row for each prediction."""

    def close(self) -> None:
        """Write the end of the file."""


def open_output(stream: BinaryIO, kind: Format, classes: Sequence[str]) -> Output:
    """Return the writer of a format; ``classes`` are the names of the classes."""
    names = [uri_of(name) for name in classes]
    if kind == "csv":
        return CsvOutput(stream, names)
    return JsonOutput(stream, names) if kind == "json" else ParquetOutput(stream, names)


class CsvOutput:
    """CSV with a header; after the first five columns comes the probability of each class."""

    def __init__(self, stream: BinaryIO, classes: Sequence[str]) -> None:
        self._stream, self._classes = stream, classes
        self._write(["path", "predicted", "probability", "reason", "message", *classes])

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Write a line for each prediction."""
        for one in predictions:
            name = "" if one.label is None else self._classes[one.label]
            probability = "" if one.probability is None else f"{one.probability:.6f}"
            shares = [f"{share:.6f}" for share in one.probabilities] or [""] * len(self._classes)
            self._write([one.path, name, probability, one.reason or "", one.message or "", *shares])

    def close(self) -> None:
        """Nothing more to write."""

    def _write(self, row: Sequence[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        self._stream.write(text.getvalue().encode("utf-8"))


class JsonOutput:
    """A JSON object a line."""

    def __init__(self, stream: BinaryIO, classes: Sequence[str]) -> None:
        self._stream, self._classes = stream, classes

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Write a line for each prediction."""
        for one in predictions:
            row = {
                "path": one.path,
                "predicted": None if one.label is None else self._classes[one.label],
                "probability": one.probability,
                "reason": one.reason,
                "message": one.message,
                "probabilities": dict(zip(self._classes, one.probabilities, strict=False)),
            }
            self._stream.write(json.dumps(row).encode("ascii") + b"\n")

    def close(self) -> None:
        """Nothing more to write."""


class ParquetOutput:
    """Parquet; ``probabilities`` is a list by class index, and the metadata name the classes."""

    def __init__(self, stream: BinaryIO, classes: Sequence[str]) -> None:
        self._classes = classes
        about = json.dumps({"classes": list(classes)}).encode("ascii")
        self._writer = pq.ParquetWriter(stream, _SCHEMA.with_metadata({b"shardmill": about}))

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Write a row group."""
        rows = [
            {
                "path": one.path,
                "predicted": None if one.label is None else self._classes[one.label],
                "probability": one.probability,
                "reason": one.reason,
                "message": one.message,
                "probabilities": list(one.probabilities) or None,
            }
            for one in predictions
        ]
        self._writer.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
