"""The JSON files of COCO: their entries, ids and categories."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shardmill.beam_jobs.sources.annotations.collecting import AnnotatedImage, ends_of, is_text, size_of
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.infra.errors import ConfigError

_OF_OBJECTS = ("category_id", "bbox", "segmentation", "segments_info", "keypoints")


@dataclass(frozen=True)
class Document:
    """The content of a COCO file.

    Attributes:
        table: the file.
        images, annotations, categories: its lists, as JSON has them.
    """

    table: AnnotationTable
    images: Sequence[Any]
    annotations: Sequence[Any]
    categories: Sequence[Any]

    @property
    def has_captions_alone(self) -> bool:
        """Whether its annotations are captions, and it tells nothing of objects."""
        return not self.categories and any(is_caption(entry) for entry in self.annotations)

    def image(self, at: int, known: Collection[Any]) -> AnnotatedImage:
        """Read an entry of the list of images.

        Args:
            at: its place, from 1.
            known: ids of earlier images.
        """
        entry, table = self.images[at - 1], self.table
        name, fault, size = None, "it is no object of JSON", None
        if isinstance(entry, dict):
            name, fault = _file_name(entry), ""
            size = size_of(entry.get("height"), entry.get("width"))
            if not is_id(entry.get("id")):
                fault = "it has no id"
            elif entry["id"] in known:
                fault = f"its id {entry['id']!r} is that of an earlier image"
            elif isinstance(name, str) and not is_text(name):
                fault = "its file_name holds half a character of a pair"
        path = table.path_of(name) if isinstance(name, str) and name and not fault else None
        who = f"image {at} of {table.name}"
        ends = ends_of(name) if path is not None else ()
        return AnnotatedImage(table.row_uri(at), who, path, table.part.split, size, fault or None, ends=ends)

    def names(self) -> dict[Any, str]:
        """Return id -> name of the categories that have both."""
        return {
            entry["id"]: str(entry["name"])
            for entry in self.categories
            if isinstance(entry, dict)
            and is_id(entry.get("id"))
            and isinstance(entry.get("name"), str | int | float)
            and is_text(str(entry["name"]))
        }

    def who(self, at: int) -> str:
        """Return an annotation for people, counted from 1."""
        return f"annotation {at} of {self.table.name}"


def _file_name(entry: dict[str, Any]) -> Any:
    """Return the name of an image's file; LVIS has it as the last two parts of an address."""
    address = entry.get("coco_url")
    if entry.get("file_name") is None and isinstance(address, str):
        return "/".join(address.split("/")[-2:])
    return entry.get("file_name")


def is_id(value: object) -> bool:
    """Tell whether a value can be an id; 1.0 is 1, as in Python and so in pycocotools."""
    return isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))


def is_caption(entry: object) -> bool:
    """Tell whether an annotation is a caption of its image and no object."""
    return isinstance(entry, dict) and "caption" in entry and not any(key in entry for key in _OF_OBJECTS)


_POINTS = re.compile(rb'"keypoints"\s*:\s*\[\s*"')  # names of the points of a category
_CATEGORIES = re.compile(rb'"categories"\s*:')


def content_of(table: AnnotationTable) -> Literal["objects", "points", "captions"]:
    """Return what a file tells of: key points and their objects, captions alone, or objects of all kinds."""
    data = table.read()
    if _POINTS.search(data):
        return "points"
    return "objects" if _CATEGORIES.search(data) else "captions"


def read_document(table: AnnotationTable) -> Document:
    """Read a file.

    Raises:
        ConfigError: it is none of COCO.
    """
    try:
        found = json.loads(table.read())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the annotation file {table.name} is no JSON: {error}") from error
    remedy = "give a file of COCO's format, such as instances_train.json"
    for part in ("images", "annotations"):
        if not isinstance(found, dict) or not isinstance(found.get(part), list):
            raise ConfigError(f"the annotation file {table.name} has no list {part!r}", remedy)
    categories = found.get("categories", [])
    document = Document(table, found["images"], found["annotations"], categories)
    if not isinstance(categories, list) or ("categories" not in found and not document.has_captions_alone):
        raise ConfigError(f"the annotation file {table.name} has no list 'categories'", remedy)
    return document
