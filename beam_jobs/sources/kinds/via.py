"""Objects in images, as the VGG Image Annotator describes them: annotations or projects, JSON or CSV.

The format: https://www.robots.ox.ac.uk/~vgg/software/via, also projects of VIA 3. Rectangles, circles,
ellipses and polygons are read; lines and single points are counted. The class is the attribute of regions
that ``source.columns.label`` names, or the only one.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import (
    NO_NAME,
    READINGS,
    AnnotatedImage,
    Annotations,
    Box,
    is_text,
)
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.annotations.shapes import Shape, points_of
from shardmill.beam_jobs.sources.annotations.tools.drawn import LEFT_OUT, ellipse, numbers_in
from shardmill.beam_jobs.sources.annotations.tools.recognising import recognise_documents
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.errors import ConfigError

BAD_NUMBERS, BROKEN = "without the numbers of their shape", "that are no regions"

_VIA = re.compile(
    rb'\A\s*\{.*?"(_via_settings|_via_img_metadata|shape_attributes|file_attributes|vid_list)"\s*:',
    re.DOTALL,
)
_VIA_CSV = re.compile(rb"\A(\xef\xbb\xbf)?#?\"?filename\"?,[^\n]*region_shape_attributes")
_NO_OBJECTS = ("point", "polyline", "line")
_LARGEST_FIELD = 1 << 26

Region = tuple[Any, Any]  # shape_attributes, region_attributes


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that VIA's files name in it, and every image they name.

    Raises:
        NotFoundError: there is no such folder or annotation file, or no image that they name.
        ConfigError: an annotation file is not of this format, or it is not told which attribute is the class.
    """

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        read = [(table, list(_images(table))) for table in tables]
        regions = (region for _, images in read for _, some in images for region in some)
        attribute = _attribute(regions, config.source.columns.label)
        for table, images in read:
            for at, (name, some) in enumerate(images, 1):
                _add_image(found, table, at, name, some, attribute)

    return list_annotated(folder, config, add_files)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the JSON or CSV file that describes images as VIA does, or several whose names give splits."""
    for pattern, ending in ((_VIA, ".json"), (_VIA_CSV, ".csv")):
        if (
            found := recognise_documents("via", "as VIA does", pattern, ending, glance, settings)
        ) is not None:
            return found
    return None


def _images(table: AnnotationTable) -> Iterator[tuple[Any, list[Region]]]:
    """Yield the name of each image and its regions.

    Raises:
        ConfigError: the file is not of this format.
    """
    data = table.read()
    try:
        text = data.decode("utf-8-sig")
        images = _of_csv(text) if table.name.lower().endswith(".csv") else _of_json(json.loads(text))
    except (ValueError, RecursionError, csv.Error) as error:
        raise ConfigError(
            f"the annotation file {table.name} is not of VIA: {error}",
            "export annotations as JSON or CSV",
        ) from error
    yield from images


def _of_json(document: Any) -> list[tuple[Any, list[Region]]]:
    if isinstance(document, dict) and "_via_img_metadata" in document:
        document = document["_via_img_metadata"]
    if isinstance(document, dict) and {"project", "file", "view", "metadata"} <= document.keys():
        return _of_third(document)
    if not isinstance(document, dict):
        raise ValueError("it has no images")
    entries = [entry if isinstance(entry, dict) else {} for entry in document.values()]
    if entries and not any("filename" in entry for entry in entries):
        raise ValueError("no entry has a filename")
    found = []
    for entry in entries:
        regions = entry.get("regions") or []
        every = list(regions.values()) if isinstance(regions, dict) else regions  # VIA 1 numbers them
        pairs = [
            (region.get("shape_attributes"), region.get("region_attributes"))
            if isinstance(region, dict)
            else (None, None)
            for region in (every if isinstance(every, list) else [None])
        ]
        found.append((entry.get("filename"), pairs))
    return found


_SHAPES: dict[int, tuple[str, tuple[str, ...]]] = {  # of VIA 3: number -> name and numbers
    1: ("point", ()),
    2: ("rect", ("x", "y", "width", "height")),
    3: ("circle", ("cx", "cy", "r")),
    4: ("ellipse", ("cx", "cy", "rx", "ry")),
    5: ("line", ()),
    6: ("polyline", ()),
}
_POLYGON, _EXTREMES, _OF_IMAGE = 7, 8, 2


def _of_third(document: Mapping[str, Any]) -> list[tuple[Any, list[Region]]]:
    """Return the images and regions of a project of VIA 3, written as those of VIA 2.

    Raises:
        ValueError: it has none.
    """
    parts = {
        name: {key: value for key, value in document[name].items() if isinstance(value, dict)}
        for name in ("file", "view", "metadata", "attribute")
        if isinstance(document.get(name), dict)
    }
    files, named = parts.get("file", {}), parts.get("attribute", {})
    found: dict[str, tuple[Any, list[Region]]] = {}
    for key, view in parts.get("view", {}).items():
        ids = view.get("fid_list")
        file = files.get(str(ids[0]), {}) if isinstance(ids, list) and len(ids) == 1 else {}
        if file.get("type") == _OF_IMAGE:
            found[key] = file.get("fname"), []
    if not found:
        raise ValueError("it has no view of an image")
    for entry in parts.get("metadata", {}).values():
        image = found.get(str(entry.get("vid")))
        if image is not None and entry.get("xy"):
            image[1].append((_shape_of_third(entry["xy"]), _values_of_third(entry.get("av"), named)))
    return list(found.values())


def _shape_of_third(xy: Any) -> dict[str, Any] | None:
    if not isinstance(xy, list) or type(xy[0]) is not int:
        return None
    if xy[0] == _POLYGON:
        return {"name": "polygon", "all_points_x": xy[1::2], "all_points_y": xy[2::2]}
    if xy[0] == _EXTREMES and len(points := points_of(xy[1:])):  # of a rectangle
        (top, left), (bottom, right) = points.min(0).tolist(), points.max(0).tolist()
        return {"name": "rect", "x": left, "y": top, "width": right - left, "height": bottom - top}
    name, keys = _SHAPES.get(xy[0], ("", ()))
    return {"name": name, **dict(zip(keys, xy[1:], strict=False))}


def _values_of_third(values: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a region by their names; of options the one that is chosen."""
    found = {}
    for key, value in values.items() if isinstance(values, dict) else ():
        attribute = attributes.get(key, {})
        options = attribute.get("options")
        chosen = options.get(value) if isinstance(options, dict) and isinstance(value, str) else None
        found[str(attribute.get("aname", key))] = value if chosen is None else chosen
    return found


def _of_csv(text: str) -> list[tuple[Any, list[Region]]]:
    csv.field_size_limit(_LARGEST_FIELD)
    rows = csv.DictReader(io.StringIO(text))
    rows.fieldnames = [(name or "").lstrip("#") for name in rows.fieldnames or ()]
    if not {"filename", "region_shape_attributes", "region_attributes"} <= set(rows.fieldnames):
        raise ValueError("it lacks columns of VIA")
    found: dict[str, list[Region]] = {}
    for row in rows:
        regions = found.setdefault(row["filename"] or "", [])
        shape = _parsed(row["region_shape_attributes"])
        if shape != {}:  # an image without regions has a row of its own
            regions.append((shape, _parsed(row["region_attributes"])))
    return list(found.items())


def _parsed(text: str | None) -> Any:
    """Return a value of JSON; None if the text is none."""
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None


def _attribute(regions: Iterator[Region], given: str | None) -> str:
    """Return the attribute of regions that is their class: the given one, or the only one.

    Raises:
        ConfigError: no region has it, or there are several and none is given.
    """
    counts = Counter(name for _, values in regions if isinstance(values, dict) for name in values)
    if given is not None and given not in counts:
        raise ConfigError(
            f"source.columns.label = {given!r}, which no region has as an attribute",
            f"there are: {quoted(sorted(counts)) or 'none'}",
        )
    if given is None and len(counts) > 1:
        names = [name for name, _ in counts.most_common()]
        raise ConfigError(
            f"the regions have the attributes {quoted(names)}",
            "say which is the class: "
            + "; or ".join(f"--set source.columns.label={name}" for name in names[:READINGS]),
        )
    return given or next(iter(counts), "")


def _add_image(
    found: Annotations, table: AnnotationTable, at: int, name: Any, regions: list[Region], attribute: str
) -> None:
    """Add an image and its objects."""
    is_named = is_text(name) and bool(name)
    path, who = (table.path_of(name) if is_named else None), f"image {at} of {table.name}"
    image = AnnotatedImage(table.row_uri(at), who, path, table.part.split, ends=(name,) if is_named else ())
    number = found.add_image(image)
    for order, (shape, values) in enumerate(regions, 1):
        of_region = f"region {order} of {who}"
        kind = shape.get("name") if isinstance(shape, dict) else None
        if kind in _NO_OBJECTS:
            found.skip(kind, LEFT_OUT, of_region)
            continue
        outline = _outline(kind, shape) if isinstance(shape, dict) else None
        label = _class_of(values.get(attribute) if isinstance(values, dict) else None)
        if outline is None:
            found.leave_out(number, BAD_NUMBERS if kind in _KINDS else BROKEN, of_region)
        elif label is None:
            found.leave_out(number, NO_NAME, of_region)
        else:
            found.add_object(number, outline[0], label, shape=outline[1], who=of_region)


_KINDS = ("rect", "circle", "ellipse", "polygon")


def _outline(kind: object, shape: Mapping[str, Any]) -> tuple[Box | None, Shape | None] | None:
    """Return box and shape of a region; None if its numbers are not those of this kind."""
    if kind == "rect" and (numbers := numbers_in(shape, "x", "y", "width", "height")):
        left, top, width, height = numbers
        return (top, left, top + height, left + width), None
    if kind == "circle" and (numbers := numbers_in(shape, "cx", "cy", "r")):
        x, y, radius = numbers
        return None, ellipse(x, y, radius, radius)
    if kind == "ellipse" and (numbers := numbers_in(shape, "cx", "cy", "rx", "ry")):
        turn = numbers_in({"theta": shape.get("theta") or 0}, "theta")  # radians; VIA 1 has none
        x, y, radius_x, radius_y = numbers
        return None if turn is None else (None, ellipse(x, y, radius_x, radius_y, math.degrees(turn[0])))
    if kind == "polygon":
        xs, ys = shape.get("all_points_x"), shape.get("all_points_y")
        if isinstance(xs, list) and isinstance(ys, list) and len(xs) == len(ys):
            points = points_of([list(pair) for pair in zip(xs, ys, strict=True)])
            return (None, Shape(rings=[points])) if len(points) else None
    return None


def _class_of(value: Any) -> str | None:
    """Return the class that the value of an attribute gives; of a check box the only one that is set."""
    if isinstance(value, dict):
        chosen = [name for name, is_set in value.items() if is_set]
        value = chosen[0] if len(chosen) == 1 else None
    return value.strip() or None if isinstance(value, str) and is_text(value) else None
