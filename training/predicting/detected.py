"""Write the objects that were found in image files as CSV, JSON lines or Parquet, a part at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.codecs.geometry import have_area
from shardmill.infra.format.known_features import BOX_NUMBERS, CORNER_NUMBERS
from shardmill.infra.storage.locations import uri_of
from shardmill.infra.strict_json import dump_json
from shardmill.training.export.model_input import View
from shardmill.training.models.spec import ModelOutput
from shardmill.training.predicting.inputs import Input
from shardmill.training.predicting.outputs import Output

# The numbers of a box by the output of the model: edges, or y and x of four corners.
PLACES: Mapping[ModelOutput, tuple[str, ...]] = {
    "objects": ("top", "left", "bottom", "right"),
    "oriented": ("y1", "x1", "y2", "x2", "y3", "x3", "y4", "x4"),
}


def _schema(places: Sequence[str]) -> pa.Schema:
    one = pa.struct({"label": pa.string(), "score": pa.float32(), **dict.fromkeys(places, pa.float32())})
    return pa.schema(
        {
            "path": pa.string(),
            "height": pa.int32(),
            "width": pa.int32(),
            "objects": pa.list_(one),
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
        objects: class, score, and the box in pixels of the upright image; None: the file was refused.
        reason, message: why it was refused.
    """

    path: str
    height: int | None
    width: int | None
    objects: list[dict[str, Any]] | None
    reason: str | None = None
    message: str | None = None


def detected(
    inputs: Sequence[Input], outputs: Outputs | None, names: Sequence[str], places: Sequence[str]
) -> Iterator[Detected]:
    """Yield the objects of each file.

    Args:
        inputs: the files.
        outputs: of the exported model for those that were decoded, in their order; None: there are none.
        names: names of the classes.
        places: names of the numbers of a box, of ``PLACES``.
    """
    shown, row = [uri_of(name) for name in names], 0
    for one in inputs:
        if one.seen is None or outputs is None:
            yield Detected(one.path, None, None, None, one.reason, one.message)
            continue
        is_found = outputs["classes"][row] >= 0
        view, boxes = one.seen.view, outputs["boxes"][row][is_found]
        edges, boxes = _placed(view, boxes)
        shown_at_all = have_area(edges)  # not around padding alone
        found = zip(
            outputs["classes"][row][is_found][shown_at_all].tolist(),
            outputs["scores"][row][is_found][shown_at_all].tolist(),
            boxes[shown_at_all].round(2).tolist(),
            strict=True,
        )
        objects = [
            {"label": shown[kind], "score": round(score, 6), **dict(zip(places, box, strict=True))}
            for kind, score, box in found
        ]
        row += 1
        yield Detected(one.path, *one.seen.view.upright, objects)


def _placed(view: View, boxes: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the edges of boxes within the picture [n, 4], and the boxes (pixels) [n, 4 or 8]."""
    if boxes.shape[1] == BOX_NUMBERS:
        edges = view.boxes(boxes)
        return edges, edges
    corners = rectangles(view.points(boxes.reshape(-1, 2)).reshape(-1, 4, 2))
    around = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    return around.clip(0.0, np.array(view.upright * 2)), corners.reshape(-1, CORNER_NUMBERS)


def rectangles(corners: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the rectangles that parallelograms nearly are: both [n, 4, 2], corners in turn."""
    centre: npt.NDArray[np.float64] = corners.mean(axis=1)
    # As complex numbers, of which the other edge is a quarter turn ahead, or behind in a mirrored box.
    one, other = ((corners[:, at] - corners[:, 0]) @ (1.0, 1.0j) for at in (1, 3))
    quarter = np.where((one.conj() * other).imag < 0, -1.0j, 1.0j)
    turned = one * np.abs(one) + other / quarter * np.abs(other)  # the longer edge tells more
    along = turned / np.maximum(np.abs(turned), np.finfo(np.float64).tiny)
    one, other = along * np.abs(one) / 2, along * quarter * np.abs(other) / 2
    found = np.stack([-one - other, one - other, one + other, other - one], axis=1)
    around: npt.NDArray[np.float64] = np.stack([found.real, found.imag], axis=2)
    return centre[:, np.newaxis] + around


class DetectedCsv(Output):
    """CSV with a line for each object; a file without objects, or one that was refused, has one line too."""

    def __init__(self, stream: BinaryIO, places: Sequence[str]) -> None:
        self._stream, self._columns = stream, ("label", "score", *places)
        self._write(["path", "height", "width", *self._columns, "reason", "message"])

    def add(self, rows: Sequence[Detected]) -> None:
        """Write the lines of each file."""
        for one in rows:
            start = [one.path, one.height, one.width]
            for found in one.objects or [{}]:
                values = [found.get(name) for name in self._columns]
                self._write([*start, *values, one.reason, one.message])

    def _write(self, row: Sequence[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(["" if value is None else value for value in row])
        self._stream.write(text.getvalue().encode("utf-8"))


class DetectedJson(Output):
    """A JSON object a file, in lines."""

    def __init__(self, stream: BinaryIO, _places: Sequence[str]) -> None:
        self._stream = stream

    def add(self, rows: Sequence[Detected]) -> None:
        """Write a line for each file."""
        for one in rows:
            self._stream.write(dump_json(asdict(one)).encode("ascii") + b"\n")


class DetectedParquet(Output):
    """Parquet with a row for each file."""

    def __init__(self, stream: BinaryIO, places: Sequence[str]) -> None:
        self._writer = pq.ParquetWriter(stream, _schema(places))

    def add(self, rows: Sequence[Detected]) -> None:
        """Write a row group."""
        self._writer.write_table(
            pa.Table.from_pylist([asdict(one) for one in rows], schema=self._writer.schema)
        )

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


DETECTED_FILES: Mapping[str, Callable[[BinaryIO, Sequence[str]], Output]] = {
    "csv": DetectedCsv,
    "json": DetectedJson,
    "parquet": DetectedParquet,
}
