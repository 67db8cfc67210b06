"""Features that the rows of box tables give their images; all rows of an image must give it the same."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import FeatureColumn
from shardmill.beam_jobs.schemas import CONTRADICTION
from shardmill.beam_jobs.sources.annotations.box_rows import BoxTable, named_row
from shardmill.beam_jobs.sources.annotations.collecting import Annotations
from shardmill.beam_jobs.sources.kinds.table.typed.features import TypedColumn, joined_features
from shardmill.beam_jobs.tables.features import PREFIX, equal_rows

_SHOWN = 40  # characters of a value

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _TableFeatures:
    """The features of the rows of one table.

    Attributes:
        table: its name.
        columns: name of a feature -> its values [rows].
        images: int64 [rows], number of the image of each row.
    """

    table: str
    columns: Mapping[str, TypedColumn]
    images: Int64


@dataclass(frozen=True)
class FeaturesOfImages:
    """The features of the images of all tables.

    Attributes:
        asked: the settings of each feature, by name.
        tables: those that were added.
    """

    asked: Mapping[str, FeatureColumn]
    tables: list[_TableFeatures] = field(default_factory=list)

    def add(self, name: str, table: BoxTable, images: Sequence[int]) -> None:
        """Add the rows of a table.

        Args:
            name: name of the table.
            table: its rows.
            images: number of the image of each row.
        """
        if self.asked:
            self.tables.append(_TableFeatures(name, table.features, np.array(images, np.int64)))

    def settle(self, found: Annotations) -> None:
        """Give each image the features of its first row, and a fault if a later row gives it others.

        Images that no row names have none.

        Raises:
            ConfigError: a feature has several types in the tables.
        """
        if not self.asked:
            return
        values = joined_features([table.columns for table in self.tables], self.asked)
        images = np.concatenate([table.images for table in self.tables])
        first = np.full(len(found.images), -1, np.int64)
        named, at = np.unique(images, return_index=True)
        first[named] = at
        found.features = values.take(pa.array(first, mask=first < 0))
        for image, (row, feature) in _contradictions(values, images, first).items():
            if found.images[image].fault is None:
                column = values[PREFIX + feature]
                one, other = (_in_words(column[at].as_py()) for at in (first[image], row))
                words = f"its {feature} is {one}, and {other} in {self._who(row)}"
                found.images[image] = replace(found.images[image], fault=words, reason=CONTRADICTION)

    def _who(self, row: int) -> str:
        """Return a row for people; rows are counted through all tables from 0."""
        starts = np.cumsum([0, *(len(table.images) for table in self.tables)]).tolist()
        table = bisect(starts, row) - 1
        return named_row(self.tables[table].table, row - starts[table] + 1)[1]


def _contradictions(values: pa.Table, images: Int64, first: Int64) -> dict[int, tuple[int, str]]:
    """Return the first row that gives an image another value than its first row, and the feature, by image.

    Args:
        values: a column for each feature [rows].
        images: int64 [rows], number of the image of each row.
        first: int64 [images], first row of each image.
    """
    found: dict[int, tuple[int, str]] = {}
    later = np.flatnonzero(first[images] != np.arange(len(images)))
    if not len(later):
        return found
    earlier, later_rows = pa.array(first[images[later]]), pa.array(later)
    for name in values.column_names:
        column = values[name]
        differing = later[~equal_rows(column.take(later_rows), column.take(earlier))]
        contradicted, at = np.unique(images[differing], return_index=True)
        for image, row in zip(contradicted.tolist(), differing[at].tolist(), strict=True):
            if image not in found or row < found[image][0]:
                found[image] = row, name.removeprefix(PREFIX)
    return found


def _in_words(value: Any) -> str:
    """Return a value as it is shown in a message."""
    text = "unset" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
