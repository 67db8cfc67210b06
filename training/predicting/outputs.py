"""Write predictions as CSV, JSON lines or Parquet, a part at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.storage.locations import uri_of
from shardmill.infra.strict_json import dump_json
from shardmill.training.tasks.kind import Decisions

Format = Literal["csv", "parquet", "json"]
FORMATS: tuple[Format, ...] = ("csv", "parquet", "json")

_LIST_SEPARATOR = "; "  # in CSV


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction of one file, or the reason why there is none.

    Attributes:
        path: path of the file.
        values: the probability of each class, or the number for each target; empty: the file was refused.
        reason, message: why it was refused.
        further: columns that do not follow from the values, by name.
    """

    path: str
    values: Sequence[float]
    reason: str | None = None
    message: str | None = None
    further: Mapping[str, Any] = field(default_factory=dict)


class Output:
    """Writes predictions of image files in one format."""

    def add(self, rows: Sequence[Any]) -> None:
        """Write the rows of some files."""
        raise NotImplementedError

    def close(self) -> None:
        """Write the end of the file, if the format has one."""


def open_output(stream: BinaryIO, kind: Format, decisions: Decisions, names: Sequence[str]) -> Output:
    """Return the writer of a format.

    Args:
        stream: takes the file.
        kind: the format.
        decisions: what the values of the task mean.
        names: names of the classes or targets.
    """
    shown = [uri_of(name) for name in names]
    if kind == "csv":
        return CsvOutput(stream, decisions, shown)
    return (JsonOutput if kind == "json" else ParquetOutput)(stream, decisions, shown)


class CsvOutput(Output):
    """CSV with a header; after the first columns comes one for each class or target."""

    def __init__(self, stream: BinaryIO, decisions: Decisions, names: Sequence[str]) -> None:
        self._stream, self._decisions, self._names = stream, decisions, names
        self._write(["path", *decisions.columns, "reason", "message", *names])

    def add(self, rows: Sequence[Prediction]) -> None:
        """Write a line for each prediction."""
        for one in rows:
            decided = _decided(self._decisions, self._names, one)
            numbers = [self._decisions.number.format(value) for value in one.values]
            cells = [self._cell(value) for value in decided.values()]
            said = [one.reason or "", one.message or ""]
            self._write([one.path, *cells, *said, *(numbers or [""] * len(self._names))])

    def _cell(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, list):
            return _LIST_SEPARATOR.join(value)
        return str(value) if isinstance(value, str | int) else self._decisions.number.format(value)

    def _write(self, row: Sequence[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        self._stream.write(text.getvalue().encode("utf-8"))


class JsonOutput(Output):
    """A JSON object a line."""

    def __init__(self, stream: BinaryIO, decisions: Decisions, names: Sequence[str]) -> None:
        self._stream, self._decisions, self._names = stream, decisions, names

    def add(self, rows: Sequence[Prediction]) -> None:
        """Write a line for each prediction."""
        for one in rows:
            row = {
                "path": one.path,
                **_decided(self._decisions, self._names, one),
                "reason": one.reason,
                "message": one.message,
                self._decisions.values_column: dict(zip(self._names, one.values, strict=False)),
            }
            self._stream.write(dump_json(row).encode("ascii") + b"\n")


class ParquetOutput(Output):
    """Parquet; the values are a list by class or target, whose names stand in the metadata."""

    def __init__(self, stream: BinaryIO, decisions: Decisions, names: Sequence[str]) -> None:
        self._decisions, self._names = decisions, names
        about = dump_json({"classes": list(names)}).encode("ascii")
        text = pa.string()
        fields = {"path": text, **decisions.columns, "reason": text, "message": text}
        fields[decisions.values_column] = pa.list_(pa.float32())
        self._schema = pa.schema(fields)
        self._writer = pq.ParquetWriter(stream, self._schema.with_metadata({b"shardmill": about}))

    def add(self, rows: Sequence[Prediction]) -> None:
        """Write a row group."""
        table = [
            {
                "path": one.path,
                **_decided(self._decisions, self._names, one),
                "reason": one.reason,
                "message": one.message,
                self._decisions.values_column: list(one.values) or None,
            }
            for one in rows
        ]
        self._writer.write_table(pa.Table.from_pylist(table, schema=self._schema))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def _decided(decisions: Decisions, names: Sequence[str], one: Prediction) -> dict[str, Any]:
    """Return the decision of a prediction by column; None in each of a file that was refused."""
    decided = {**decisions.decide(names, one.values), **one.further} if one.values else {}
    return {name: decided.get(name) for name in decisions.columns}
