"""The shapes of COCO's objects: polygons, masks as run lengths, and key points."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmill.beam_jobs.sources.annotations.collecting import Annotations, is_text
from shardmill.beam_jobs.sources.annotations.shapes import Shape, points_of
from shardmill.beam_jobs.sources.kinds.coco.documents import Document
from shardmill.beam_jobs.sources.kinds.coco.run_lengths import RunLengthsBroken, mask_of_run_lengths
from shardmill.infra.codecs.polygons import rings_of_mask
from shardmill.infra.format.features import KeyPoints, partners_by_name

_NEITHER = "that are neither polygons nor run lengths"


def name_points(found: Annotations, document: Document) -> None:
    """Name the key points of the categories of a file, which counts them from 1 in its skeletons.

    Raises:
        ConfigError: another file gives a category different ones.
    """
    names = document.names()
    for entry in document.categories:
        points = entry.get("keypoints") if isinstance(entry, dict) else None
        if not points or not isinstance(entry.get("id"), int | str | float) or entry["id"] not in names:
            continue
        name = names[entry["id"]]
        whose = f"{document.table.name}: the key points of {name!r}"
        if not isinstance(points, list) or not all(map(is_text, points)) or len(set(points)) < len(points):
            found.warnings.append(f"{whose} are no list of different names, and are not read")
            continue
        given = entry.get("skeleton") or []
        each = given if isinstance(given, list) else [given]
        pairs = [pair for pair in each if _is_pair(pair, len(points))]
        if len(pairs) < len(each):
            found.warnings.append(f"{whose} have a skeleton that joins other than two of them")
        skeleton = tuple((int(one) - 1, int(other) - 1) for one, other in pairs)
        partners = partners_by_name(points)
        found.name_points(name, KeyPoints(names=tuple(points), skeleton=skeleton, partners=partners))


def _is_pair(value: Any, count: int) -> bool:
    """Tell whether a value is a pair of numbers of points, from 1."""
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and all(type(one) in (int, float) and one in range(1, count + 1) for one in value)


def polygon_of(found: Annotations, value: object, size: tuple[int, int] | None, who: str) -> Shape | None:
    """Return the rings of a segmentation, as JSON has it; None if there are none.

    Args:
        found: counts those that are broken.
        value: lists of x, y, x, y, ...; or run lengths, or a list of these.
        size: height and width of its image (pixels), if they are known.
        who: the annotation, for people.
    """
    if value in (None, [], ""):
        return None
    parts: list[Any] = value if isinstance(value, list) else [value]
    if all(isinstance(part, dict) for part in parts):
        try:
            masks = [mask_of_run_lengths(part, size) for part in parts]
            if len({mask.shape for mask in masks}) > 1:
                raise RunLengthsBroken("of several sizes")
        except RunLengthsBroken as error:
            found.skip("run-length mask", str(error), who)
            return None
        return Shape(rings_of_mask(np.logical_or.reduce(masks)), has_holes=True)
    if not isinstance(value, list):
        found.skip("polygon", _NEITHER, who)
        return None
    if isinstance(value[0], int | float):  # a single ring
        parts = [value]
    return Shape([points_of(part) for part in parts])
