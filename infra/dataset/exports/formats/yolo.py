"""YOLO: images, a label file for each, and ``data.yaml``, as the package ultralytics reads them.

::

    data.yaml                            names of classes, folders of the splits, what the key points are
    images/train/0f3c5a7be1d24c68.jpg    the stored image (.png, .webp; raw pixels as .png)
    labels/train/0f3c5a7be1d24c68.txt    a row for each object; empty if there are none

A row is the number of a class and a box (``yolo-detect``), an outline (``yolo-segment``), a box and key
points (``yolo-pose``), or the corners of an oriented box (``yolo-obb``). ``yolo`` takes the one shape that
the objects have. The rings of an outline become one, along edges there and back. Crowds, and oriented boxes
whose middles lie outside, are left out with a warning: YOLO cannot say them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from shardmill.infra.dataset.exports.formats import Format
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan, as_picture, class_names, image_suffix
from shardmill.infra.dataset.exports.target import FileMade, PartFiles
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import (
    BOX_NUMBERS,
    BOXES,
    CORNER_NUMBERS,
    CORNERS,
    CROWDS,
    KEYPOINTS,
    OBJECT_LABELS,
    POINT_NUMBERS,
    POLYGONS,
    RING_POINTS,
    RINGS,
    VISIBILITY,
    WORDS,
    key_points,
)
from shardmill.infra.progress import log
from shardmill.infra.readable import counted
from shardmill.infra.strict_json import dump_json

_DETECT = "detect"
_TOLERANCE = 0.009  # that a box may lie outside: a little less than the hundredth of ultralytics
_FEATURES = {"segment": POLYGONS, "pose": KEYPOINTS, "obb": CORNERS}  # task -> feature of its shape
_FOLDERS = {"train": "train", "validation": "val", "test": "test"}
_NOT_PLAIN = re.compile("[^ -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")

Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]  # a row of an index


class _Yolo(Format):
    """Writes the objects of a version as rows of one task; None: the task of the shape that they have."""

    def __init__(self, task: str | None = None) -> None:
        self._task = task

    def check(self, plan: Plan) -> None:
        task = self._task_of(plan)
        num_crowds = num_bare = num_outer = 0
        more = {"segment": [RINGS], "obb": [CORNERS]}.get(task, [])
        for part in plan.parts:
            rows = plan.version.rows(part.shard, [CROWDS, *more])
            are_crowds = pc.list_flatten(rows[CROWDS]).to_numpy() != 0
            num_crowds += int(are_crowds.sum())
            if task == "segment":
                num_bare += int(((pc.list_flatten(rows[RINGS]).to_numpy() == 0) & ~are_crowds).sum())
            if task == "obb":
                corners = pc.list_flatten(rows[CORNERS]).to_numpy().reshape(-1, CORNER_NUMBERS)
                num_outer += int((~_are_sayable(corners) & ~are_crowds).sum())
        for count, words in (
            (num_crowds, "{} left out: YOLO has no crowds"),
            (num_outer, "{} left out: YOLO takes no oriented box whose middle is outside or that is larger"),
            (num_bare, "{} without an outline written with that of the box"),
        ):
            if count:
                log(words.format(counted(count, "object")), level="warning")

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        suffix, number, task = image_suffix(plan, raw="png"), 0, self._task_of(plan)
        folder = _FOLDERS.get(part.split, part.split)
        for batch in batches:
            rows = batch.index.select([name for name in batch.index.column_names if "/" in name]).to_pylist()
            for record, row in zip(batch.records, rows, strict=True):
                files.write(f"images/{folder}/{record.id}.{suffix}", as_picture(plan, record))
                files.write(f"labels/{folder}/{record.id}.txt", "".join(_lines(row, task)).encode())
            number += len(batch.records)
        return number

    def describe(self, plan: Plan, parts: Sequence[FileMade]) -> dict[str, bytes]:
        lines = [f"# {plan.version.name}@{plan.version.version} of Shardmill"]
        folders = {folder: split for split, folder in _FOLDERS.items()}
        folders |= {split: split for split in plan.splits if split not in _FOLDERS}
        for folder, split in folders.items():
            lines.append(f"{folder}: {f'images/{folder}' if split in plan.splits else ''}".rstrip())
        task = self._task_of(plan)
        lines.append(f"task: {task}")
        points = key_points(plan.version.manifest.extra_features) if task == "pose" else None
        names = class_names(plan)
        if points is not None:
            lines.append(f"kpt_shape: [{len(points.names)}, 3]")
            if points.partners is not None:
                lines.append(f"flip_idx: {list(points.partners)}")
            lines += [
                "kpt_names:",
                *(f"  {at}: [{', '.join(map(_quoted, points.names))}]" for at in range(len(names))),
            ]
        lines += ["names:", *(f"  {at}: {_quoted(name)}" for at, name in enumerate(names)), ""]
        return {"data.yaml": "\n".join(lines).encode()}

    def _task_of(self, plan: Plan) -> str:
        """Return the task of the rows.

        Raises:
            UsageError: there are no objects, or not of this shape, or the shape is not told.
        """
        manifest, ref = plan.version.manifest, plan.version.ref
        known = {feature.name for feature in manifest.extra_features}
        if BOXES not in known:
            raise UsageError(
                f"YOLO holds objects, and {ref} has {WORDS[manifest.label_kind]}",
                "export the format folder: YOLO classifies folders of images too",
            )
        tasks = [task for task, feature in _FEATURES.items() if feature in known]
        if self._task is not None and self._task not in (_DETECT, *tasks):
            raise UsageError(
                f"the objects of {ref} have no {_FEATURES[self._task]}",
                f"export {' or '.join(f'yolo-{task}' for task in (_DETECT, *tasks))}",
            )
        if self._task is None and len(tasks) > 1:
            raise UsageError(
                f"a row of YOLO holds one shape, and the objects of {ref} have {' and '.join(tasks)}",
                f"say which: --format {', or '.join(f'yolo-{task}' for task in (*tasks, _DETECT))}",
            )
        return self._task or (tasks[0] if tasks else _DETECT)


def _quoted(name: str) -> str:
    """Return a name as YAML reads it: JSON, whose rarer characters are escaped."""
    return _NOT_PLAIN.sub(_escaped, dump_json(name, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _lines(row: Row, task: str) -> Iterator[str]:
    """Yield the rows of the objects of a record that are no crowds."""
    if not row[OBJECT_LABELS]:
        return
    boxes = np.array(row[BOXES], np.float64).reshape(-1, BOX_NUMBERS)
    values = _VALUES[task](row, boxes)
    for label, is_crowd, numbers in zip(row[OBJECT_LABELS], row[CROWDS], values, strict=True):
        if not is_crowd and (task != "obb" or _are_sayable(numbers[np.newaxis]).all()):
            words = (np.format_float_positional(number, trim="-") for number in numbers)
            yield f"{label} {' '.join(words)}\n"


def _are_sayable(corners: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    """Tell of each oriented box [N, 8] whether ultralytics takes it: a hundredth outside is allowed."""
    points = corners.reshape(-1, CORNER_NUMBERS // 2, POINT_NUMBERS)
    near, far = points.min(1), points.max(1)
    numbers = np.concatenate([(near + far) / 2, far - near], axis=1)
    return np.asarray((np.abs(numbers - 0.5) <= 0.5 + _TOLERANCE).all(1))


def _middles(boxes: Floats) -> Floats:
    """Return middle (x, y), width and height of boxes: [N, 4]."""
    near, far = boxes[:, 1::-1], boxes[:, :1:-1]
    return np.concatenate([(near + far) / 2, far - near], axis=1)


def _of_boxes(row: Row, boxes: Floats) -> Iterator[Floats]:
    yield from _middles(boxes)


def _of_polygons(row: Row, boxes: Floats) -> Iterator[npt.NDArray[np.floating[Any]]]:
    points = np.array(row[POLYGONS] or [], np.float32).reshape(-1, POINT_NUMBERS)
    rings = iter(np.split(points, np.cumsum(row[RING_POINTS] or [], dtype=np.int64)))
    for box, count in zip(boxes, row[RINGS] or [0] * len(boxes), strict=True):
        top, left, bottom, right = box.astype(np.float32)
        path = np.array([[top, left], [top, right], [bottom, right], [bottom, left]])
        for number in range(count):
            path = next(rings) if number == 0 else _joined(path, next(rings))
        yield path[:, ::-1].ravel()


def _joined(path: npt.NDArray[np.float32], ring: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return a ring that goes around both, by an edge between their nearest points there and back."""
    distances = np.square(path[:, np.newaxis] - ring).sum(-1)
    at, start = np.unravel_index(distances.argmin(), distances.shape)
    return np.concatenate([path[: at + 1], ring[start:], ring[: start + 1], path[at:]])


def _of_points(row: Row, boxes: Floats) -> Iterator[list[Any]]:
    count = len(boxes)
    points = np.array(row[KEYPOINTS], np.float32).reshape(count, -1, POINT_NUMBERS)
    seen = np.array(row[VISIBILITY], np.int64).reshape(count, -1)
    for box, where, visible in zip(_middles(boxes), points, seen, strict=True):
        triples = ((x, y, v) for (y, x), v in zip(where, visible, strict=True))
        yield [*box, *(number for triple in triples for number in triple)]


def _of_corners(row: Row, boxes: Floats) -> Iterator[npt.NDArray[np.float32]]:
    for corners in np.array(row[CORNERS], np.float32).reshape(-1, CORNER_NUMBERS // 2, POINT_NUMBERS):
        yield corners[:, ::-1].ravel()


_VALUES: Final[dict[str, Callable[[Row, Floats], Iterator[Any]]]] = {
    _DETECT: _of_boxes,
    "segment": _of_polygons,
    "pose": _of_points,
    "obb": _of_corners,
}

FORMAT = _Yolo()
VARIANTS = {task: _Yolo(task) for task in _VALUES}
