"""Objects as the records of TensorFlow's Object Detection API hold them: a list for each edge of the boxes.

``image/object/bbox/xmin``, ``xmax``, ``ymin`` and ``ymax`` are relative to the image; the classes are texts
(``image/object/class/text``) or numbers (``image/object/class/label``).
https://github.com/tensorflow/models/blob/master/research/object_detection/g3doc/using_your_own_dataset.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import FeatureColumn, SourceConfig
from shardmill.beam_jobs.sources.class_names import ClassNumbers
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.rows.objects import with_objects
from shardmill.beam_jobs.tables.columns import (
    is_listed,
    lengths_of,
    lists_of,
    mask_of,
    one_chunk,
)
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.infra.format.examples import parse_features
from shardmill.infra.format.features import Feature

_OBJECT = "image/object/"
_EDGES = ("ymin", "xmin", "ymax", "xmax")
_BOXES = tuple(f"{_OBJECT}bbox/{edge}" for edge in _EDGES)
_TEXT, _NUMBER = f"{_OBJECT}class/text", f"{_OBJECT}class/label"
_CROWDS = tuple(f"{_OBJECT}{name}" for name in ("is_crowd", "group_of", "difficult"))
_MASKS = f"{_OBJECT}mask"
_OWN = "of_objects"  # before the names of the features that become objects
_RECORDS_LOOKED_AT = 64
_MOST_RELATIVE = 2.0  # edges of relative boxes that reach over their image are not beyond


@dataclass(frozen=True)
class DetectionKeys:
    """The lists that records hold of their objects.

    Attributes:
        label: key of the classes.
        are_texts: whether these are names; else numbers.
        crowd: key of the mark of groups or difficult objects; None if there is none.
        has_masks: whether there are masks too, as files; masks of numbers are not read.
    """

    label: str
    are_texts: bool
    crowd: str | None
    has_masks: bool

    @classmethod
    def of(cls, records: Iterable[tuple[bytes, str | None]]) -> DetectionKeys | None:
        """Find them in the first records of a file; None if these have no boxes.

        Args:
            records: payload, and why it cannot be read.
        """
        known: dict[str, bool] = {}  # key -> whether it has values
        has_masks = False
        for payload, fault in islice(records, _RECORDS_LOOKED_AT):
            try:
                features = {} if fault is not None else parse_features(payload)
            except CorruptDataError:
                continue
            for key, values in features.items():
                known[key] = known.get(key, False) or bool(values)
            has_masks |= any(isinstance(mask, bytes) for mask in features.get(_MASKS, ())[:1])
        if not known.keys() >= {*_BOXES} or not {_TEXT, _NUMBER} & known.keys():
            return None
        are_texts = known.get(_TEXT, False) or _NUMBER not in known
        crowd = next((key for key in _CROWDS if known.get(key)), None)
        return cls(_TEXT if are_texts else _NUMBER, are_texts, crowd, has_masks)

    def asked(self) -> dict[str, FeatureColumn]:
        """Return the features that hold them: name -> how they are read."""
        kinds = dict.fromkeys(_BOXES, "float") | {self.label: "text" if self.are_texts else "int64"}
        kinds |= {} if self.crowd is None else {self.crowd: "int64"}
        kinds |= {_MASKS: "bytes"} if self.has_masks else {}
        return {
            f"{_OWN}{at}": FeatureColumn(column=key, dtype=kind)
            for at, (key, kind) in enumerate(kinds.items())
        }

    def settings(self, source: SourceConfig) -> SourceConfig:
        """Return the settings by which records are listed: their lists are further features first.

        Raises:
            ConfigError: labels of objects are to be dropped or merged.
        """
        columns = source.columns
        if columns.drop_labels or columns.merge_labels:
            raise ConfigError(
                "the records have objects, and drop_labels and merge_labels are for images",
                "leave them out, or write annotations of COCO, of which they name the classes of objects",
            )
        columns = columns.model_copy(update={"features": {**columns.further, **self.asked()}})
        return source.model_copy(update={"labels": "none", "columns": columns})

    def with_objects(self, listing: Listing, names: ClassNumbers) -> Listing:
        """Turn the lists of each record into objects.

        Args:
            listing: with the features of ``asked``.
            names: number -> name of the classes whose labels are numbers.

        Raises:
            ConfigError: the boxes are not relative to their images.
        """
        own = list(self.asked())
        table = listing.table
        columns = [_as_lists(table[PREFIX + name]) for name in own]
        boxes, label = _boxes(columns[: len(_BOXES)]), columns[len(_BOXES)]
        values = label.flatten()
        if self.are_texts:
            texts = pc.utf8_trim_whitespace(values)
            classes = sorted({text for text in pc.unique(texts).to_pylist() if text})
            numbers = pc.index_in(texts, pa.array(classes, pa.string()))
        else:
            known = list(names) or sorted(pc.unique(values.filter(pc.greater_equal(values, 0))).to_pylist())
            classes = list(names.values()) or list(map(str, known))
            numbers = pc.index_in(values, pa.array(known, pa.int64()))
        numbers = lists_of(pc.fill_null(numbers, -1).cast(pa.int64()), lengths_of(label))
        table = table.drop_columns([PREFIX + name for name in own])
        read = {"boxes": (boxes, "float32"), "label": (numbers, "int64")}
        if self.crowd is not None:
            read["crowd"] = (columns[len(_BOXES) + 1], "int64")
        if self.has_masks:
            read["masks"] = (columns[-1], "bytes")
        for name, (column, dtype) in read.items():
            feature = Feature(name=_OWN + name, dtype=dtype, shape="variable")
            table = table.append_column(feature.arrow_field(PREFIX), column)
        return with_objects(
            replace(listing, table=table),
            [_OWN + name if name in read else None for name in ("boxes", "label", "crowd")],
            classes,
            _OWN + "masks" if self.has_masks else None,
        )


def _as_lists(column: pa.ChunkedArray) -> pa.ListArray:
    """Return a column of lists, without null; one of single values if no record has more than one."""
    values = one_chunk(column)
    if not is_listed(values.type):
        return lists_of(values.drop_null(), mask_of(pc.is_valid(values)))
    return lists_of(values.flatten(), lengths_of(values))


def _boxes(edges: list[pa.ListArray]) -> pa.ListArray:
    """Return lists of four edges an object; one number, which is no box, where the lists differ in length.

    Raises:
        ConfigError: they are not relative.
    """
    lengths = np.stack([lengths_of(each) for each in edges])
    fit = (lengths == lengths[0]).all(0)
    fitting = [each.filter(pa.array(fit)).flatten() for each in edges]
    values = np.stack([each.to_numpy(zero_copy_only=False) for each in fitting], 1)
    if 2 * np.count_nonzero(values.max(1, initial=0) > _MOST_RELATIVE) > len(values):
        raise ConfigError(
            f"most boxes of the records reach beyond {_MOST_RELATIVE:g}: they seem to be in pixels",
            f"write {', '.join(_BOXES)} relative to the image; or read no objects: --set source.labels=none",
        )
    counts = np.where(fit, 4 * lengths[0], 1)
    numbers = np.zeros(counts.sum(), np.float32)
    numbers[np.repeat(fit, counts)] = values.reshape(-1)
    return lists_of(pa.array(numbers), counts)
