"""Features of the records of a batch as tensors, beside its images."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from shardmill.infra.format.features import MISSING, Feature
from shardmill.infra.format.known_features import BOXES, CROWDS, OBJECT_LABELS
from shardmill.training.arrays import Ints
from shardmill.training.reading.records.columns import FeatureColumns, Padded
from shardmill.training.reading.records.objects import NO_OBJECT
from shardmill.training.reading.records.split_table import SplitTable

_KINDS = {"int64": tf.int64, "float32": tf.float32, "bytes": tf.string}


def feature_tensors(columns: FeatureColumns, ordinals: Any, *, ragged: bool = True) -> dict[str, Any]:
    """Return the features of records by name.

    Args:
        columns: the features.
        ordinals: int64 [b], the records.
        ragged: lists of any length become ``tf.RaggedTensor``; else they are padded with the missing value.

    Returns:
        int64, float32 or string tensors: [b], [b, length], or [b, any number].
    """
    kinds = [kind for feature in columns.features for kind in _parts(feature)]
    tensors = iter(tf.numpy_function(lambda rows: _values(columns, rows), [ordinals], kinds, stateful=False))
    found = {}
    for feature in columns.features:
        values = next(tensors)
        if feature.shape != "variable":
            values.set_shape([*ordinals.shape, *([] if feature.length is None else [feature.length])])
            found[feature.name] = values
            continue
        lengths = next(tensors)
        lengths.set_shape(ordinals.shape)
        values.set_shape([ordinals.shape[0], None])
        found[feature.name] = tf.RaggedTensor.from_tensor(values, lengths) if ragged else values
    return found


def object_tensors(
    objects: Mapping[str, Any], names: Collection[str], *, ragged: bool = True
) -> dict[str, Any]:
    """Return objects as features of the names among ``FOLLOWING``, as ``feature_tensors`` does.

    Args:
        objects: ``Objects`` by name; tensors.
        names: names of the features.
        ragged: lists become ``tf.RaggedTensor``; else they are padded with the missing value.
    """
    values = {BOXES: objects["boxes"], OBJECT_LABELS: objects["classes"], CROWDS: objects["crowds"]}
    counts = tf.reduce_sum(tf.cast(objects["classes"] != NO_OBJECT, tf.int64), axis=1)
    found = {}
    for name in names:
        kind = tf.float32 if name == BOXES else tf.int64
        column = tf.RaggedTensor.from_tensor(tf.cast(values[name], kind), counts)
        if name == BOXES:
            column = column.merge_dims(1, 2)
        missing = MISSING["float32" if name == BOXES else "int64"]
        found[name] = column if ragged else column.to_tensor(tf.constant(missing, kind))
    return found


def label_tensors(table: SplitTable, ordinals: Any) -> Any:
    """Return the labels of records (``SplitTable.labels_of``)."""
    kind = tf.float32 if table.label_shape else tf.int32
    labels = tf.numpy_function(table.labels_of, [ordinals], kind, stateful=False)
    labels.set_shape([*ordinals.shape, *table.label_shape])
    return labels


def _parts(feature: Feature) -> list[Any]:
    kind = _KINDS[feature.dtype]
    return [kind, tf.int64] if feature.shape == "variable" else [kind]


def _values(columns: FeatureColumns, ordinals: Ints) -> list[Any]:
    """Return the arrays of all features, one after the other, with texts as bytes."""
    parts: list[Any] = []
    for feature, values in zip(columns.features, columns.rows(ordinals).values(), strict=True):
        arrays = list(values) if isinstance(values, Padded) else [values]
        if feature.is_text:
            arrays[0] = _encoded(arrays[0])
        parts += arrays
    return parts


def _encoded(texts: Any) -> Any:
    encoded = np.empty(texts.shape, object)
    encoded.reshape(-1)[:] = [text.encode() for text in texts.reshape(-1)]
    return encoded
