"""Write the objects that were found in image files as CSV, JSON lines or Parquet, a part at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.codecs.geometry import have_area
from shardmill.infra.storage.locations import uri_of
from shardmill.infra.strict_json import dump_json
from shardmill.training.predicting.inputs import Input
from shardmill.training.predicting.outputs import Output

_EDGES = ("top", "left", "bottom", "right")
_OBJECT = pa.struct({"label": pa.string(), "score": pa.float32(), **dict.fromkeys(_EDGES, pa.float32())})
_SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "height": pa.int32(),
        "width": pa.int32(),
        "objects": pa.list_(_OBJECT),
        "reason": pa.string(),
        "message": pa.string(),
    }
)

Outputs = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Detected:
    """The objects in one file, the surest first, or the reason why it was refused.

    Attributes:
        path: path of the file.
        height, width: of the upright image (pixels); None: the file was refused.
        objects: class, score, and the edges in pixels of the upright image; None: the file was refused.
        reason, message: why it was refused.
    """

    path: str
    height: int | None
    width: int | None
    objects: list[dict[str, Any]] | None
    reason: str | None = None
    message: str | None = None


def detected(inputs: Sequence[Input], outputs: Outputs | None, names: Sequence[str]) -> Iterator[Detected]:
    """Yield the objects of each file.

    Args:
        inputs: the files.
        outputs: of the exported model for those that were decoded, in their order; None: there are none.
        names: names of the classes.
    """
    shown, row = [uri_of(name) for name in names], 0
    for one in inputs:
        if one.seen is None or outputs is None:
            yield Detected(one.path, None, None, None, one.reason, one.message)
            continue
        is_found = outputs["classes"][row] >= 0
        boxes = one.seen.view.boxes(outputs["boxes"][row][is_found])
        shown_at_all = have_area(boxes)  # not around padding alone
        found = zip(
            outputs["classes"][row][is_found][shown_at_all].tolist(),
            outputs["scores"][row][is_found][shown_at_all].tolist(),
            boxes[shown_at_all].round(2).tolist(),
            strict=True,
        )
        objects = [
            {"label": shown[kind], "score": round(score, 6), **dict(zip(_EDGES, box, strict=True))}
            for kind, score, box in found
        ]
        row += 1
        yield Detected(one.path, *one.seen.view.upright, objects)


class DetectedCsv(Output):
    """CSV with a line for each object; a file without objects, or one that was refused, has one line too."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._write(["path", "height", "width", "label", "score", *_EDGES, "reason", "message"])

    def add(self, rows: Sequence[Detected]) -> None:
        """Write the lines of each file."""
        for one in rows:
            start = [one.path, one.height, one.width]
            for found in one.objects or [{}]:
                values = [found.get(name) for name in ("label", "score", *_EDGES)]
                self._write([*start, *values, one.reason, one.message])

    def _write(self, row: Sequence[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(["" if value is None else value for value in row])
        self._stream.write(text.getvalue().encode("utf-8"))


class DetectedJson(Output):
    """A JSON object a file, in lines."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def add(self, rows: Sequence[Detected]) -> None:
        """Write a line for each file."""
        for one in rows:
            self._stream.write(dump_json(asdict(one)).encode("ascii") + b"\n")


class DetectedParquet(Output):
    """Parquet with a row for each file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._writer = pq.ParquetWriter(stream, _SCHEMA)

    def add(self, rows: Sequence[Detected]) -> None:
        """Write a row group."""
        self._writer.write_table(pa.Table.from_pylist([asdict(one) for one in rows], schema=_SCHEMA))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


DETECTED_FILES: Mapping[str, Callable[[BinaryIO], Output]] = {
    "csv": DetectedCsv,
    "json": DetectedJson,
    "parquet": DetectedParquet,
}
