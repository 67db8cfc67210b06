"""Objects in images, as the JSON files of COCO describe them: ``instances_train.json``.

The format: https://cocodataset.org/#format-data. Of an annotation its box, its category and ``iscrowd`` are
read. An image without annotations is an image without objects.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import (
    READINGS,
    AnnotatedImage,
    Annotations,
    beginning_with,
    box_of,
    folder_of_image,
    is_text,
    size_of,
    split_with_year,
)
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.box_table.values import is_true
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.infra.errors import ConfigError

_COCO = re.compile(rb'\A\s*\{.*?"(images|annotations|categories)"\s*:\s*\[', re.DOTALL)
_COCO_NAME = re.compile(rb'"file_name"\s*:\s*"([^"]+)"')
_PARTS = ("images", "annotations", "categories")
_UNKNOWN_IMAGE, _UNKNOWN_CATEGORY = "of an unknown image", "of an unknown category"
_NO_OBJECT = "that are no objects of JSON"


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that COCO files name in it, and every image they name.

    Raises:
        NotFoundError: there is no such folder or annotation file, or none of its images is there.
        ConfigError: an annotation file is not of this format.
    """
    return list_annotated(folder, config, add_files)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the JSON file that names images as COCO does, or several whose names give different splits.

    ``instances_train2017.json`` and ``instances_val2017.json`` are such. Files of captions and key points
    beside them are left out.
    """
    found = beginning_with(_COCO, glance, ".json")
    if len(found) > 1:
        objects = [uri for uri in found if uri.rpartition("/")[2].startswith("instances")]
        found = {uri: found[uri] for uri in objects or found}
    if not found or not glance.images:
        return None
    parts: list[dict[str, str | None]] = [
        {"file": uri, "images": folder_of_image(_COCO_NAME.search(head), uri, glance)}
        for uri, head in found.items()
    ]
    why = f"{quoted(list(found))} {'lists' if len(found) == 1 else 'list'} images as COCO does"
    if len(found) > 1:
        splits = [split_with_year(uri) for uri in found]
        if None in splits or len(set(splits)) < len(splits):
            readings = [cli_for("coco", {"objects": {"annotations": [part]}}) for part in parts[:READINGS]]
            return Recognised(why, image_folders={str(part["images"]) for part in parts}, readings=readings)
        parts = [{**part, "split": split} for part, split in zip(parts, splits, strict=True)]
        why += ", and their names give the splits"
    folders = {str(part["images"]) for part in parts}
    return Recognised(why, {"objects": {"annotations": tuple(parts)}}, image_folders=folders)


def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
    """Add the images and objects of COCO files.

    Raises:
        ConfigError: one is none.
    """
    for table in tables:
        _add_file(found, table)


def _add_file(found: Annotations, table: AnnotationTable) -> None:
    """Add the images and objects of a COCO file.

    Raises:
        ConfigError: it is none.
    """
    document = _read(table)
    categories = {
        entry["id"]: str(entry["name"])
        for entry in _entries(document["categories"])
        if _is_id(entry.get("id")) and entry.get("name") is not None and is_text(str(entry["name"]))
    }
    numbers: dict[Any, int] = {}
    for at, entry in enumerate(document["images"], 1):
        image = _image(table, at, entry, numbers)
        number = found.add_image(image)
        if image.fault is None:
            numbers[entry["id"]] = number
    for at, entry in enumerate(document["annotations"], 1):
        if not isinstance(entry, dict):
            found.leave_out(None, _NO_OBJECT, f"annotation {at} of {table.name}")
            continue
        key = entry.get("image_id")
        number_of = numbers.get(key) if _is_id(key) else None
        if number_of is None:
            found.leave_out(None, _UNKNOWN_IMAGE, f"annotation {at} of {table.name}: {key!r}")
            continue
        category = entry.get("category_id")
        name = categories.get(category) if _is_id(category) else None
        if name is None:
            found.leave_out(number_of, _UNKNOWN_CATEGORY, f"annotation {at} of {table.name}: {category!r}")
            continue
        found.add_object(number_of, _box(entry.get("bbox")), name, is_crowd=is_true(entry.get("iscrowd")))


def _image(table: AnnotationTable, at: int, entry: Any, known: dict[Any, int]) -> AnnotatedImage:
    """Read an entry of the list of images."""
    part, name = table.part, None
    fault = "it is no object of JSON"
    size = None
    if isinstance(entry, dict):
        name, fault = entry.get("file_name"), ""
        size = size_of(entry.get("height"), entry.get("width"))
        if not _is_id(entry.get("id")):
            fault = "it has no id"
        elif entry["id"] in known:
            fault = f"its id {entry['id']!r} is that of an earlier image"
        elif isinstance(name, str) and not is_text(name):
            fault = "its file_name holds half a character of a pair"
    path = table.path_of(name) if isinstance(name, str) and name and not fault else None
    return AnnotatedImage(
        table.row_uri(at), f"image {at} of {table.name}", path, part.split, size, fault or None
    )


def _box(values: object) -> tuple[float, float, float, float] | None:
    """Return x, y, width, height as edges."""
    box = box_of(values)
    if box is None:
        return None
    left, top, width, height = box
    return top, left, top + height, left + width


def _is_id(value: object) -> bool:
    """Tell whether a value can be an id; 1.0 is 1, as in Python and so in pycocotools."""
    return isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))


def _entries(values: list[Any]) -> Iterator[dict[str, Any]]:
    return (entry for entry in values if isinstance(entry, dict))


def _read(table: AnnotationTable) -> dict[str, list[Any]]:
    try:
        document = json.loads(table.read())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the annotation file {table.name} is no JSON: {error}") from error
    for part in _PARTS:
        if not isinstance(document, dict) or not isinstance(document.get(part), list):
            raise ConfigError(
                f"the annotation file {table.name} has no list {part!r}",
                "give a file of COCO's format for object detection, such as instances_train.json",
            )
    return dict(document)
