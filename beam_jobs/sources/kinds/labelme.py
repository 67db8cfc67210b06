"""Objects in images, as the JSON files of LabelMe describe them: one file an image.

The format: https://github.com/wkentaro/labelme. Rectangles are boxes, ``oriented_rectangle`` (``rotation`` of
X-AnyLabeling) is an oriented box, polygons, circles and masks are outlines. A point is a key point of the
object with its ``group_id``, named by its label. Flags are the feature ``flags``. The image is the file that
is named like the JSON file, or that ``imagePath`` names; a picture in the file (``imageData``) is not read.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import (
    NO_NAME,
    AnnotatedImage,
    Annotations,
    Box,
    is_text,
    size_of,
)
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import MOST_BYTES, AnnotationTable, read_together
from shardmill.beam_jobs.sources.annotations.shapes import Points, Shape, points_of, rings_of_file
from shardmill.beam_jobs.sources.annotations.tools.drawn import LEFT_OUT, Drawn, DrawnObjects, ellipse
from shardmill.beam_jobs.sources.annotations.tools.recognising import recognise_one_an_image
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.storage.locations import stem_of

BAD_POINTS, OTHER_SHAPE = "whose points are not those of their shape", "of a shape that is not read"
LONE_POINT = "that are points of no object"

_LABELME = re.compile(rb'\A\s*\{(?=.*?"(imagePath|flags|shape_type)"\s*:).*?"shapes"\s*:\s*\[', re.DOTALL)
_MOST_WITH_PICTURE = 16 * MOST_BYTES  # of a file that also holds its picture
_ORIENTED = ("oriented_rectangle", "rotation")


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that JSON files name in it, and every image they name.

    Raises:
        NotFoundError: there is no such folder or annotation file, or no image that they name.
    """

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        drawn = DrawnObjects("flags")
        for table, text in read_together(AnnotationTable.content, tables):
            _add_file(found, drawn, table, text)
        drawn.finish(found)

    return list_annotated(folder, config, add_files)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the folders of JSON files that describe an image each as LabelMe does."""
    return recognise_one_an_image("labelme", "as LabelMe does", _LABELME, ".json", glance, settings)


def _add_file(found: Annotations, drawn: DrawnObjects, table: AnnotationTable, text: bytes | str) -> None:
    """Add the image and the objects of a file; ``text`` is its content, or why it cannot be read."""
    who, uri, split = f"the image of {table.name}", table.row_uri(1), table.part.split
    document = _document(text)
    if isinstance(document, str):
        found.add_image(AnnotatedImage(uri, who, None, split, None, document))
        return
    size = size_of(document.get("imageHeight"), document.get("imageWidth"))
    given, stem = document.get("imagePath"), stem_of(table.name)
    name = given if isinstance(given, str) and given and is_text(given) else stem.rpartition("/")[2]
    folder = table.part.images or stem.rpartition("/")[0]
    path = "/".join(
        part for part in f"{folder}/{name}".replace("\\", "/").split("/") if part not in ("", ".")
    )
    within = f"there is no file {name}; its picture is within {table.name} (imageData): save it as a file"
    image = AnnotatedImage(
        uri, who, path, split, size, namesake=stem, ends=(name,),
        if_missing=within if document.get("imageData") else None,
    )  # fmt: skip
    number = found.add_image(image)
    flags = document.get("flags")
    for flag, is_set in flags.items() if isinstance(flags, dict) else ():
        if is_set is True and is_text(flag):
            drawn.say(number, flag)
    _add_shapes(found, drawn, number, document["shapes"], table.name)


def _add_shapes(found: Annotations, drawn: DrawnObjects, image: int, shapes: list[Any], file: str) -> None:
    """Add the objects of a file. Outlines of the same class and group are parts of one object."""
    named = [
        (f"shape {at} of {file}", shape) for at, shape in enumerate(shapes, 1) if isinstance(shape, dict)
    ]
    for _ in range(len(shapes) - len(named)):
        found.leave_out(image, OTHER_SHAPE, file)
    points = _points_of_groups(found, named)
    parts: dict[tuple[Any, ...], Drawn] = {}
    for who, shape in named:
        kind, label, group = shape.get("shape_type") or "polygon", shape.get("label"), _group(shape)
        if kind == "point":
            continue
        outline = _outline(kind, points_of(shape.get("points")), shape.get("mask"))
        if outline is None and kind in ("line", "linestrip", "points"):
            found.skip(str(kind), LEFT_OUT, who)
        elif outline is None:
            found.leave_out(image, BAD_POINTS if kind in _KINDS else OTHER_SHAPE, who)
        elif not is_text(label) or not label:
            found.leave_out(image, NO_NAME, who)
        else:
            box, own = outline
            key = (label, group, own is not None and own.has_holes)
            first = parts.get(key)
            if group is not None and own is not None and own.rings and first is not None and first.shape:
                first.shape = Shape([*first.shape.rings, *own.rings], own.has_holes)
                continue
            drawn.add(image, label, who, box=box, shape=own, points=points.pop(group, {}))
            if own is not None and own.rings:
                parts[key] = drawn.objects[-1]
    for name in (name for some in points.values() for name in some):
        found.skip("point", LONE_POINT, f"{name!r} of {file}")


def _points_of_groups(
    found: Annotations, named: list[tuple[str, dict[str, Any]]]
) -> dict[Any, dict[str, tuple[float, float, int]]]:
    """Return the points of each group that has an object, by their labels."""
    groups = {_group(shape) for _, shape in named if shape.get("shape_type") != "point"} - {None}
    points: dict[Any, dict[str, tuple[float, float, int]]] = {}
    for who, shape in named:
        if shape.get("shape_type") == "point":
            where = points_of(shape.get("points"))
            if _group(shape) not in groups or len(where) != 1 or not is_text(shape.get("label")):
                found.skip("point", LONE_POINT, who)
                continue
            y, x = where[0].tolist()
            points.setdefault(_group(shape), {})[shape["label"]] = (y, x, 2)
    return points


_KINDS = ("polygon", "rectangle", "circle", "mask", *_ORIENTED)


def _outline(kind: object, points: Points, mask: object) -> tuple[Box | None, Shape | None] | None:
    """Return box and shape of an object; None if its points are not those of this kind."""
    if kind == "rectangle" and len(points) in (2, 4):  # X-AnyLabeling writes all four corners
        (top, left), (bottom, right) = points.min(0).tolist(), points.max(0).tolist()
        return (top, left, bottom, right), None
    if kind == "circle" and len(points) == 2:
        (y, x), edge = points[0].tolist(), points[1].tolist()
        radius = math.hypot(edge[0] - y, edge[1] - x)
        return None, ellipse(x, y, radius, radius)
    if kind in _ORIENTED and len(points) == 4:
        return None, Shape(corners=points)
    if kind == "polygon" and len(points) > 2:
        return None, Shape(rings=[points])
    if kind == "mask" and len(points) == 2:
        rings = _rings(mask)
        return (
            (None, Shape(rings=[ring + points.min(0) for ring in rings], has_holes=True)) if rings else None
        )
    return None


def _rings(mask: object) -> list[Points]:
    """Return the outline of a mask, a PNG as base64; none if it is something else."""
    try:
        return rings_of_file(base64.b64decode(mask if isinstance(mask, str) else "", validate=True))[0]
    except (ValueError, ImageRejected):
        return []


def _group(shape: dict[str, Any]) -> int | None:
    group = shape.get("group_id")
    return group if isinstance(group, int) and not isinstance(group, bool) else None


def _document(text: bytes | str) -> dict[str, Any] | str:
    """Return the content of a file, or why it is no annotation."""
    if isinstance(text, str):
        return text
    if len(text) > _MOST_WITH_PICTURE:
        return f"its file has more than {_MOST_WITH_PICTURE:,} bytes"
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"its file is no JSON: {error}"
    if not isinstance(document, dict) or not isinstance(document.get("shapes"), list):
        return "its file is no annotation of LabelMe: it has no list of shapes"
    return document
