"""A kind of source whose images have shapes: ``shapes.json`` names images and objects with their shapes.

``{"points": {class: KeyPoints}, "images": {file: {"size": [height, width], "objects": [object, ...]}}}``. An
object has ``name``, and of ``box``, ``rings``, ``has_holes``, ``keypoints``, ``visibility``, ``corners`` and
``is_crowd`` what it has; points are x, y.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources.annotations.collecting import AnnotatedImage, Annotations
from shardmill.beam_jobs.sources.annotations.listing import AnnotationTable, list_annotated
from shardmill.beam_jobs.sources.annotations.shapes import Shape, points_of
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table.tables import find_files_named
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.format.features import KeyPoints

KIND = __name__
FILE = "shapes.json"


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects of its shapes.json."""

    def add_files(found: Annotations, _tables: Sequence[AnnotationTable]) -> None:
        (table,) = find_files_named(folder, FILE, "source.kind")
        document = json.loads(table.folder.read_bytes(table.path))
        for name, points in document.get("points", {}).items():
            found.name_points(name, KeyPoints.model_validate(points))
        for file, entry in document["images"].items():
            size = tuple(entry["size"]) if entry.get("size") else None
            image = found.add_image(AnnotatedImage(f"{FILE}#image={file}", file, file, size=size))
            for number, described in enumerate(entry["objects"]):
                found.add_object(
                    image,
                    tuple(described["box"]) if described.get("box") else None,
                    described["name"],
                    is_crowd=described.get("is_crowd", False),
                    shape=_shape(described),
                    who=f"object {number} of {file}",
                )

    return list_annotated(folder, config, add_files)


def _shape(described: dict[str, Any]) -> Shape | None:
    if not {"rings", "keypoints", "corners"} & described.keys():
        return None
    keypoints, corners = described.get("keypoints"), described.get("corners")
    return Shape(
        [points_of(ring) for ring in described.get("rings", ())],
        described.get("has_holes", False),
        None if keypoints is None else points_of(keypoints),
        described.get("visibility"),
        None if corners is None else points_of(corners),
    )
