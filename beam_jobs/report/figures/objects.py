"""The objects of the records, and those that are left out of them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.known_features import CROWDS, LEFT_OUT

EXAMPLES = 12


@dataclass(slots=True)
class ObjectFigures:
    """Counts over all records of a version with boxes.

    Attributes:
        num_objects: in the records.
        num_crowds: how many of these are boxes around groups of objects, or difficult ones.
        num_left_out: objects of annotations that are not in their records.
        num_images: records that lack objects of their annotations.
        examples: (objects left out, objects in the record, URI) of those that lack most.
    """

    num_objects: int = 0
    num_crowds: int = 0
    num_left_out: int = 0
    num_images: int = 0
    examples: list[tuple[int, int, str]] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Count the rows of an index that has the columns of ``object_columns``."""
        crowds, left_out = rows[CROWDS].combine_chunks(), rows[LEFT_OUT]
        self.num_objects += pc.sum(pc.list_value_length(crowds)).as_py() or 0
        self.num_crowds += pc.sum(pc.list_flatten(crowds)).as_py() or 0
        self.num_left_out += pc.sum(left_out).as_py() or 0
        lacking = rows.filter(pc.greater(left_out, 0))
        self.num_images += lacking.num_rows
        found = zip(
            lacking[LEFT_OUT].to_pylist(),
            pc.fill_null(pc.list_value_length(lacking[CROWDS]), 0).to_pylist(),
            lacking["source_uri"].to_pylist(),
            strict=True,
        )
        most = heapq.nsmallest(EXAMPLES, [*self.examples, *found], key=lambda each: (-each[0], each[2]))
        self.examples = most


def object_columns(manifest: Manifest) -> list[str]:
    """Return the columns of the indexes that tell of objects; none if the version has no boxes."""
    names = {feature.name for feature in manifest.extra_features}
    return [CROWDS, LEFT_OUT] if {CROWDS, LEFT_OUT} <= names else []
