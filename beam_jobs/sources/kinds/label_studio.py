"""Objects in images, as JSON and JSON-MIN of Label Studio describe them: one file a project.

The format: https://labelstud.io/guide/task_format. Rectangles, turned ones, polygons, ellipses (in percent of
the upright image) and brushes are read. A key point belongs to the region that is its parent (``parentID``).
Choices are the feature ``choices``; a single one is a plain text in JSON-MIN, and is not read. Texts are
counted. Paths such as ``/data/upload/3/1a2b3c4d-a.jpg`` name files by their ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import BROKEN_ROW, CONTRADICTION
from shardmill.beam_jobs.sources.annotations.collecting import (
    NO_NAME,
    AnnotatedImage,
    Annotations,
    Box,
    is_text,
    size_of,
)
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.annotations.shapes import Shape, points_of
from shardmill.beam_jobs.sources.annotations.tools.brushes import mask_of_brush
from shardmill.beam_jobs.sources.annotations.tools.drawn import (
    LEFT_OUT,
    DrawnObjects,
    ellipse,
    numbers_in,
    read_json,
    turned_box,
)
from shardmill.beam_jobs.sources.annotations.tools.recognising import recognise_documents
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import IMAGE_ENDINGS, Glance, Recognised
from shardmill.infra.codecs.polygons import rings_of_mask
from shardmill.infra.errors import ConfigError

BAD_NUMBERS, SEVERAL = "without the numbers of their shape and the size of their image", "with several labels"
LONE_POINT, TURNED = "that are points of no object", "of an image that was turned while it was labelled"

_TASKS = re.compile(
    rb'\A\s*\[\s*\{(?=.*?"(annotations|completions|original_width)"\s*:).*?"(data|id|annotation_id)"\s*:',
    re.DOTALL,
)
_UPLOAD = re.compile(r"^[0-9a-f]{8}-")
_OF_REGIONS = {"x", "points", "rle"}
_IMAGE_KEYS = ("image", "img", "image_url", "url", "ocr")

Result = Mapping[str, Any]


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that Label Studio's files name in it, and every image.

    Raises:
        NotFoundError: there is no such folder or annotation file, or no image that they name.
        ConfigError: an annotation file is not of this format.
    """

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        drawn = DrawnObjects("choices")
        for table in tables:
            tasks = read_json(table)
            if not isinstance(tasks, list):
                raise ConfigError(
                    f"the annotation file {table.name} is no list of tasks", "export the project as JSON"
                )
            for at, task in enumerate(tasks, 1):
                _add_task(found, drawn, table, at, task)
        drawn.finish(found)

    return list_annotated(folder, config, add_files)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the JSON file that describes images as Label Studio does, or several whose names give splits."""
    return recognise_documents("label_studio", "as Label Studio does", _TASKS, ".json", glance, settings)


def _add_task(found: Annotations, drawn: DrawnObjects, table: AnnotationTable, at: int, task: Any) -> None:
    """Add the image of a task and its objects."""
    who, uri = f"task {at} of {table.name}", table.row_uri(at)
    if not isinstance(task, dict):
        found.add_image(AnnotatedImage(uri, who, None, table.part.split, None, "it is no object of JSON"))
        return
    results, fault, reason = _results(task)
    data = task.get("data", task)
    named = _images_of(data) if isinstance(data, dict) else []
    ends = _ends(named[0]) if len(named) == 1 else ()
    if fault is None and (several := _several_images(named, results)) is not None:
        fault = several
    size = next(
        filter(None, (size_of(one.get("original_height"), one.get("original_width")) for one in results)),
        None,
    )
    path = table.path_of(ends[0]) if ends else None
    image = AnnotatedImage(uri, who, path, table.part.split, size, fault, reason, ends=ends)
    number = found.add_image(image)
    if fault is not None:
        return
    regions = (one for one in results if "keypointlabels" not in _value(one))
    known = {one["id"] for one in regions if isinstance(one.get("id"), str)}
    points: dict[Any, dict[str, tuple[float, float, int]]] = {}
    for order, one in enumerate(results, 1):
        if "keypointlabels" in _value(one):
            _keep_point(found, points, one, known, f"result {order} of {who}")
    for order, one in enumerate(results, 1):
        if "keypointlabels" not in _value(one):
            _add_result(found, drawn, number, one, points, f"result {order} of {who}")
    for name in (name for some in points.values() for name in some):
        found.skip("keypointlabels", LONE_POINT, f"{name!r} of {who}")


def _results(task: dict[str, Any]) -> tuple[list[Result], str | None, str]:
    """Return the results of the annotation that counts; why there is none, and the reason that this is."""
    annotations = task.get("annotations", task.get("completions"))
    if annotations is None:  # JSON-MIN: lists of regions under names of their own
        lists = [value for name, value in task.items() if isinstance(value, list) and name != "predictions"]
        regions = ({**one, "value": one} for value in lists for one in value if isinstance(one, dict))
        choices = ({"value": value} for value in task.values() if "choices" in _value({"value": value}))
        return [*regions, *choices], None, BROKEN_ROW
    if not isinstance(annotations, list) or not all(isinstance(one, dict) for one in annotations):
        return [], "its annotations are no list of objects of JSON", BROKEN_ROW
    usable = [one for one in annotations if not one.get("was_cancelled")]
    if len(usable) > 1:
        usable = [one for one in usable if one.get("ground_truth")] or usable
    if len(usable) > 1:
        return [], f"it has {len(usable)} annotations: mark one as ground truth", CONTRADICTION
    results = usable[0].get("result") if usable else []
    if not isinstance(results, list):
        return [], "its annotation has no list of results", BROKEN_ROW
    return [one if isinstance(one, dict) else {} for one in results], None, BROKEN_ROW


def _several_images(named: Sequence[str], results: Sequence[Result]) -> str | None:
    """Return words if a task has several images, whose regions cannot be told apart."""
    if len(named) > 1:
        return f"its data name several images: {', '.join(named)}"
    of_regions = (one.get("to_name") for one in results if _OF_REGIONS & _value(one).keys())
    shown = sorted({str(name) for name in of_regions if is_text(name)})
    return f"its regions are of several images: {', '.join(shown)}" if len(shown) > 1 else None


def _images_of(data: dict[str, Any]) -> list[str]:
    """Return the paths of the images that a task names."""
    paths = {
        name: _path(value)
        for name, value in data.items()
        if isinstance(value, str) and value and is_text(value)
    }
    named = [paths[name] for name in _IMAGE_KEYS if name in paths][:1]
    of_images = (path for path in paths.values() if path.lower().endswith(IMAGE_ENDINGS))
    return named or list(dict.fromkeys(of_images))


def _ends(path: str) -> tuple[str, ...]:
    """Return the paths that an image may end in: as uploaded, and under its own name."""
    folder, slash, name = path.rpartition("/")
    plain = _UPLOAD.sub("", name)
    return (path,) if plain == name else (path, f"{folder}{slash}{plain}")


def _path(address: str) -> str:
    """Return the path in an address, without a slash at its ends: of an upload, a local file or a bucket."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    return parse_qs(parts.query).get("d", [unquote(parts.path)])[0].strip("/")


def _value(one: Result) -> dict[str, Any]:
    value = one.get("value")
    return value if isinstance(value, dict) else {}


def _labels(value: Mapping[str, Any]) -> list[Any] | None:
    """Return the labels of a region; None if it is something else, such as a choice."""
    lists = [labels for name, labels in value.items() if name.endswith("labels") and isinstance(labels, list)]
    return lists[0] if lists else None


def _keep_point(
    found: Annotations,
    points: dict[Any, dict[str, tuple[float, float, int]]],
    one: Result,
    known: set[Any],
    who: str,
) -> None:
    """Keep a key point for its parent."""
    value, sizes = _value(one), numbers_in(one, "original_width", "original_height")
    where, labels, parent = numbers_in(value, "x", "y"), _labels(value) or [], one.get("parentID")
    if not isinstance(parent, str) or parent not in known or where is None or sizes is None:
        found.skip("keypointlabels", LONE_POINT, who)
    elif len(labels) != 1 or not is_text(labels[0]):
        found.skip("keypointlabels", SEVERAL, who)
    else:
        x, y = (number * side / 100 for number, side in zip(where, sizes, strict=True))
        points.setdefault(parent, {})[labels[0]] = (y, x, 2)


def _add_result(
    found: Annotations,
    drawn: DrawnObjects,
    image: int,
    one: Result,
    points: dict[Any, dict[str, tuple[float, float, int]]],
    who: str,
) -> None:
    """Add a region, or count it."""
    value, kind = _value(one), one.get("type")
    labels, choices = _labels(value), value.get("choices")
    is_of_region = bool(_OF_REGIONS & value.keys())
    if isinstance(choices, list) and all(map(is_text, choices)) and not is_of_region:
        for choice in choices:
            drawn.say(image, choice)
        return
    if labels is None or not ({"width", "points", "radiusX", "rle"} & value.keys()):
        found.skip(str(kind or "result"), LEFT_OUT, who)
        return
    outline = _outline(value, one)
    if one.get("image_rotation"):
        found.leave_out(image, TURNED, who)
    elif outline is None:
        found.leave_out(image, BAD_NUMBERS, who)
    elif len(labels) > 1:
        found.leave_out(image, SEVERAL, who)
    elif not labels or not is_text(labels[0]) or not labels[0]:
        found.leave_out(image, NO_NAME, who)
    else:
        identity = one.get("id")
        grouped = points.pop(identity, None) if isinstance(identity, str) else None
        drawn.add(image, labels[0], who, box=outline[0], shape=outline[1], points=grouped)


def _outline(value: Mapping[str, Any], one: Result) -> tuple[Box | None, Shape | None] | None:
    """Return box and shape of a region (pixels); None if its numbers are not those of a shape."""
    sizes = numbers_in(one, "original_width", "original_height")
    turn = numbers_in({"rotation": value.get("rotation") or 0}, "rotation")
    if sizes is None or turn is None:
        return None
    if "rle" in value:
        painted = mask_of_brush(value["rle"], *(int(side) for side in sizes[::-1]))
        rings = [] if painted is None else rings_of_mask(painted)
        return (None, Shape(rings=rings, has_holes=True)) if rings else None
    across, down = (side / 100 for side in sizes)
    if (numbers := numbers_in(value, "x", "y", "width", "height")) is not None:
        left, top, width, height = np.multiply(numbers, [across, down, across, down]).tolist()
        if turn[0]:
            return None, Shape(corners=turned_box(left, top, width, height, turn[0], around_corner=True))
        return (top, left, top + height, left + width), None
    if (numbers := numbers_in(value, "x", "y", "radiusX", "radiusY")) is not None:
        x, y, radius_x, radius_y = np.multiply(numbers, [across, down, across, down]).tolist()
        return None, ellipse(x, y, radius_x, radius_y, turn[0])
    points = points_of(value.get("points")) * [down, across]
    return (None, Shape(rings=[points])) if len(points) else None
