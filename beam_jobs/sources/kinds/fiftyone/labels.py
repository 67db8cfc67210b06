"""The objects and classes in the labels of FiftyOne: boxes, masks within them, polygons and key points.

All numbers are relative to the image. A mask is an array of NumPy, compressed by zlib, that fills its box.
"""

from __future__ import annotations

import base64
import io
import math
import zlib
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import ValidationError

from shardmill.beam_jobs.sources.annotations.collecting import (
    NO_BOX,
    Annotations,
    Box,
    edges_of_size,
    is_text,
)
from shardmill.beam_jobs.sources.annotations.shapes import Shape, points_of
from shardmill.beam_jobs.sources.kinds.box_table.values import is_true
from shardmill.beam_jobs.sources.kinds.fiftyone.samples import Sample, Samples
from shardmill.infra.codecs.numpy_files import ARRAY_DAMAGES
from shardmill.infra.codecs.polygons import rings_of_mask
from shardmill.infra.format.features import KeyPoints, partners_by_name

_LISTS = {"Detections": "detections", "Polylines": "polylines", "Keypoints": "keypoints"}
_CROWDS = ("iscrowd", "is_crowd", "IsGroupOf", "is_group_of")
_NO_OBJECT = "that are no objects of JSON"
_OPEN, _IN_A_FILE, _NO_MASK = "that are open lines", "in a file of their own", "that are no array of NumPy"
_MOST_BYTES = 1 << 28


def classes_of(label: Any) -> list[str]:
    """Return the names of the classes of an image."""
    if not isinstance(label, dict):
        return []
    each = [label] if label.get("_cls") == "Classification" else label.get("classifications")
    found = [_name(one) for one in each] if isinstance(each, list) else []
    return [name for name in found if name is not None]


def name_points(found: Annotations, samples: Samples) -> None:
    """Name the key points of each class: by the skeleton, or by numbers where most objects have so many.

    Raises:
        ConfigError: another file gives a class different ones.
    """
    counts: dict[str, Counter[int]] = {}
    for sample in samples.images:
        for entry in _objects(sample.label):
            name, points = _name(entry), entry.get("points")
            if name is not None and entry["_cls"] == "Keypoint" and isinstance(points, list) and points:
                counts.setdefault(name, Counter())[len(points)] += 1
    given, paths = samples.skeleton.get("labels"), samples.skeleton.get("edges")
    lists = [path for path in paths if isinstance(path, list)] if isinstance(paths, list) else []
    pairs = [pair for path in lists for pair in pairwise(path)]
    for name, lengths in counts.items():
        numbers = [str(at + 1) for at in range(lengths.most_common(1)[0][0])]
        names = given if isinstance(given, list) and given and all(map(is_text, given)) else numbers
        try:
            points = KeyPoints(names=tuple(names), skeleton=tuple(pairs), partners=partners_by_name(names))
        except ValidationError as error:
            found.warnings.append(f"the skeleton of {name!r} is not read: {error.errors()[0]['msg']}")
            points = KeyPoints(names=tuple(numbers))
        found.name_points(name, points)


def add_objects(found: Annotations, number: int, sample: Sample) -> None:
    """Add the objects of a sample; ``number`` is that of its image."""
    for at, entry in enumerate(_objects(sample.label, found, number, sample), 1):
        who = f"object {at} of {sample.image.who}"
        kind = entry.get("_cls")
        is_crowd = any(is_true(_attribute(entry, name)) for name in _CROWDS)
        box, shape = None, None
        if kind == "Polyline":
            shape = _polygon(found, entry, who)
        elif kind == "Keypoint":
            shape = _points(entry)
        else:
            box = edges_of_size(entry.get("bounding_box"))
            if box is not None:
                shape = _mask(found, entry, box, who)
        if box is None and shape is None:
            found.leave_out(number, _OPEN if kind == "Polyline" else NO_BOX, who)
        else:
            found.add_object(number, box, _name(entry), is_crowd=is_crowd, shape=shape, who=who)


def _objects(
    label: Any, found: Annotations | None = None, number: int = 0, sample: Sample | None = None
) -> list[dict[str, Any]]:
    """Return the objects of a label; counts those that are none if ``found`` is given."""
    kind = label.get("_cls") if isinstance(label, dict) else None
    if not isinstance(kind, str):
        return []
    each = label.get(_LISTS[kind]) if kind in _LISTS else [label]
    each = each if isinstance(each, list) else []
    single = kind if kind not in _LISTS else kind[:-1]
    if found is not None and sample is not None:
        for one in each:
            if not isinstance(one, dict):
                found.leave_out(number, _NO_OBJECT, f"an object of {sample.image.who}")
    return [{**one, "_cls": single} for one in each if isinstance(one, dict)]


def _name(entry: Any) -> str | None:
    name = entry.get("label") if isinstance(entry, dict) else None
    if isinstance(name, int | float) and not isinstance(name, bool):
        name = str(name)
    return name.strip() or None if isinstance(name, str) and is_text(name) else None


def _attribute(entry: dict[str, Any], name: str) -> Any:
    """Return an attribute of an object: a field of its own, or one of its attributes."""
    attributes = entry.get("attributes")
    value = entry.get(name, attributes.get(name) if isinstance(attributes, dict) else None)
    return value.get("value") if isinstance(value, dict) else value


def _polygon(found: Annotations, entry: dict[str, Any], who: str) -> Shape | None:
    """Return the rings of a polygon; None if it is an open line."""
    if not (entry.get("closed") or entry.get("filled")):
        return None
    rings = entry.get("points")
    return Shape([points_of(ring) for ring in rings]) if isinstance(rings, list) else Shape([points_of([])])


def _points(entry: dict[str, Any]) -> Shape:
    """Return key points; those that are no numbers are not annotated."""
    given = entry.get("points")
    each = given if isinstance(given, list) else []
    pairs = [_pair(one) for one in each]
    seen = [0 if pair is None else 2 for pair in pairs]
    places = np.array([pair or (0.0, 0.0) for pair in pairs], np.float64).reshape(-1, 2)
    return Shape(keypoints=places[:, ::-1], visibility=seen)


def _pair(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    numbers = [_number(one) for one in value]
    return None if not all(map(math.isfinite, numbers)) else (numbers[0], numbers[1])


def _number(value: Any) -> float:
    """Return a number of JSON, also as MongoDB writes those that JSON has not; not a number for others."""
    if isinstance(value, dict):
        value = value.get("$numberDouble")
    try:
        return float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _mask(found: Annotations, entry: dict[str, Any], box: Box, who: str) -> Shape | None:
    """Return the outline of the mask in a box; None, counted if it cannot be read, if there is none."""
    if entry.get("mask") is None:
        if entry.get("mask_path") is not None:
            found.skip("mask", _IN_A_FILE, who)
        return None
    mask = _array(entry["mask"])
    if mask is None:
        found.skip("mask", _NO_MASK, who)
        return None
    top, left, bottom, right = box
    scale = np.array([(bottom - top) / mask.shape[0], (right - left) / mask.shape[1]])
    return Shape([ring * scale + (top, left) for ring in rings_of_mask(mask)], has_holes=True)


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the array [H, W] that a mask holds, or None."""
    packed = value.get("$binary") if isinstance(value, dict) else value
    packed = packed.get("base64") if isinstance(packed, dict) else packed
    if not isinstance(packed, str):
        return None
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(packed, validate=True), _MOST_BYTES)
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (*ARRAY_DAMAGES, MemoryError):
        return None
    is_mask = isinstance(array, np.ndarray) and array.ndim == 2 and array.size and array.dtype.kind in "biuf"
    return array if is_mask else None
