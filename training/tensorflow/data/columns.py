"""Call a function of numpy in a ``tf.data`` graph, and get its arrays by name, with types and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from shardmill.training.reading import SplitTable
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.annotations import FOLLOWING, LoneObjects, Objects, batch_dtype

_LABELS = "labels"
TENSOR_KINDS = {"int64": tf.int64, "float32": tf.float32, "bytes": tf.string}


class Column(NamedTuple):
    """The type of a tensor of a batch, and its shape for one example."""

    kind: Any
    shape: tuple[int | None, ...]


def call(
    function: Callable[[int], Mapping[str, Any]],
    number: Any,
    columns: Mapping[str, Column],
    rows: int,
) -> dict[str, Any]:
    """Call a function of numpy with the number of a step or slice.

    Args:
        function: returns an array of each column, [rows, ...], the same for the same number: so the position
            of an iterator can be saved (``tf.train.Checkpoint``).
        number: a tensor.
        columns: the type and shape of each array.
        rows: the number of rows of each array.

    Returns:
        A tensor of each column.
    """

    def in_order(number: Any) -> list[Any]:
        made = function(int(number))
        return [made[name] for name in columns]

    kinds = [column.kind for column in columns.values()]
    tensors = tf.numpy_function(in_order, [number], kinds, stateful=False)
    found = dict(zip(columns, tensors, strict=True))
    for name, column in columns.items():
        found[name].set_shape([rows, *column.shape])
    return found


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """The labels of a split as columns: one, or those of ``Objects``; and features that follow the images.

    Attributes:
        columns: their types and shapes by name.
        are_objects: whether the labels are those of ``Objects``.
        following: names of the features, each a column of padded lists and one of their lengths.
    """

    columns: Mapping[str, Column]
    are_objects: bool = False
    following: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: SplitTable, spec: ExampleSpec) -> LabelColumns:
        """Return the columns of masks, of the objects in the images, or of the labels of the table."""
        if (mask := table.mask) is not None:
            column = Column(tf.as_dtype(batch_dtype(mask)), (spec.image_size, spec.image_size))
            return cls({_LABELS: column})
        features = spec.features.divided(FOLLOWING)[0].features
        if spec.objects is None or features:
            shape = table.label_shape
            labels = {_LABELS: Column(tf.float32 if shape else tf.int32, shape)}
            values = {one.name: Column(TENSOR_KINDS[one.dtype], (None,)) for one in features}
            lengths = {_length(name): Column(tf.int64, ()) for name in values}
            return cls({**labels, **values, **lengths}, following=tuple(values))
        if isinstance(spec.objects, LoneObjects):
            return cls({_LABELS: Column(tf.float32, (spec.objects.width,))})
        most = spec.objects.most
        kinds = Objects(
            boxes=Column(tf.float32, (most, len(spec.objects.whole))),
            classes=Column(tf.int32, (most,)),
            crowds=Column(tf.bool, (most,)),
        )
        return cls(kinds._asdict(), are_objects=True)

    def arrays(self, labels: Any, objects: Objects | None, features: Mapping[str, Any]) -> dict[str, Any]:
        """Return the array of each column, of what a batch holds."""
        if self.are_objects and objects is not None:
            return objects._asdict()
        found = {_LABELS: labels if objects is None or isinstance(objects, Objects) else objects}
        for name in self.following:
            found[name], found[_length(name)] = features[name]
        return found

    def gathered(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return a batch whose ``labels`` are one tensor, or those of ``Objects`` by name.

        Features that follow the images stand in ``features``: padded lists and lengths, by name.
        """
        found = {name: tensor for name, tensor in tensors.items() if name not in self.columns}
        if self.are_objects:
            return found | {_LABELS: {name: tensors[name] for name in self.columns}}
        following = {name: (tensors[name], tensors[_length(name)]) for name in self.following}
        return found | {_LABELS: tensors[_LABELS], **({"features": following} if following else {})}


def _length(name: str) -> str:
    return f"number of values of {name}"
