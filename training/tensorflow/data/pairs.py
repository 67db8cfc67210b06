"""Convert batches to the form that ``model.fit`` takes: (images, labels), or with weights and features."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from shardmill.infra.format.features import MISSING, Dtype, Feature
from shardmill.training.arrays import Ints
from shardmill.training.order import Passes
from shardmill.training.reading.records.annotations import FOLLOWING
from shardmill.training.reading.records.columns import FeatureColumns, Padded
from shardmill.training.tensorflow.data.columns import TENSOR_KINDS
from shardmill.training.tensorflow.data.pipeline import Pipeline


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


def _listed(padded: tuple[Any, Any], dtype: Dtype, ragged: bool) -> Any:
    """Return padded lists, with their lengths, as a ragged tensor, or with no more padding than they need."""
    lists = tf.RaggedTensor.from_tensor(*padded)
    return lists if ragged else lists.to_tensor(tf.constant(MISSING[dtype], lists.dtype))


def _parts(feature: Feature) -> list[Any]:
    kind = TENSOR_KINDS[feature.dtype]
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


# The key of the sizes of whole images, beside "image" and the features.
SIZE = "image_size"


def as_pairs(pipeline: Pipeline, passes: Passes) -> Any:
    """Return a dataset. Each iteration of it is the next pass, whoever starts it.

    If images are whole, or features stand beside them, the first part of an element is a dict: "image",
    ``SIZE`` int32 [b, 2] of whole images (height and width in pixels), and the features by name. With padding
    or class weights elements have weights (``_weights``).

    Args:
        pipeline: the batches of one split.
        passes: the steps of each iteration, all as many.
    """
    pairs = _Pairs(pipeline)
    steps, count = passes.upcoming, len(passes.upcoming)
    pipeline.prepare(steps.start, steps.stop)

    def begun(_: Any) -> np.int64:
        steps = passes.begin()
        pipeline.prepare(steps.start, steps.stop)
        return np.int64(steps.start)

    def first_step(element: Any) -> Any:
        # Called once an iteration. Not stateful, or the position of an iterator could not be saved; and with
        # an argument, or TensorFlow would compute it once and for all.
        step = tf.numpy_function(begun, [element], tf.int64, stateful=False)
        return tf.ensure_shape(step, [])

    of_passes = tf.data.Dataset.from_tensors(0).map(first_step)
    made = of_passes.flat_map(lambda start: pairs.dataset(start, start + count))
    # The options of a dataset inside another one have no effect.
    options = pairs.dataset(steps.start, steps.stop).options()
    return made.apply(tf.data.experimental.assert_cardinality(count)).with_options(options)


class _Pairs:
    """Makes elements from the batches of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._spec = spec = pipeline.spec
        self._features = features = spec.features
        _, self._of_record = features.divided(FOLLOWING if spec.objects is not None else ())
        self._is_whole = spec.image_size is None
        self._is_weighted = spec.last_batch == "pad" or pipeline.class_weights is not None

    def dataset(self, start: Any, stop: Any) -> Any:
        """Return the elements of the steps ``start`` to ``stop``, both int64 scalar tensors."""
        pipeline = self._pipeline
        rest = len(pipeline.reader.table) % pipeline.order.global_batch_size
        if self._spec.last_batch != "partial" or not rest:
            return pipeline.dataset(start, stop).map(self._element)
        # Not `skip`: it would read and decode every batch that it skips.
        full, tail = pipeline.dataset(start, stop - 1), pipeline.dataset(stop - 1, stop)
        return full.map(self._element).concatenate(tail.map(lambda batch: self._partial(batch, rest)))

    def _element(self, batch: dict[str, Any]) -> tuple[Any, ...]:
        ordinals, ragged = batch["ordinals"], self._spec.ragged
        beside = {SIZE: batch["sizes"]} if self._is_whole else {}
        if self._features.features:
            tensors = feature_tensors(self._of_record, ordinals, ragged=ragged)
            for feature in self._features.features:
                if feature.name not in tensors:
                    tensors[feature.name] = _listed(batch["features"][feature.name], feature.dtype, ragged)
                beside[feature.name] = tensors[feature.name]
        labels = batch["labels"]
        images = {"image": batch["images"], **beside} if beside else batch["images"]
        return (images, labels, self._weights(batch["weights"])) if self._is_weighted else (images, labels)

    def _partial(self, batch: dict[str, Any], rest: int) -> tuple[Any, ...]:
        """Return the element of a batch without its padding."""
        cut = tf.nest.map_structure(lambda column: column[:rest], batch)
        if self._is_whole:  # the largest image of the batch may have been padding
            height, width = tf.unstack(tf.reduce_max(cut["sizes"], axis=0))
            cut["images"] = cut["images"][:, :height, :width]
            if self._pipeline.reader.table.mask is not None:
                cut["labels"] = cut["labels"][:, :height, :width]
        return self._element(cut)

    def _weights(self, weights: Any) -> Any:
        """Return weights with which the mean over all rows is the (weighted) mean over real examples.

        Keras divides the loss of a batch by its rows, whatever they weigh. So padding has weight 0, and the
        weights of real examples are such that all weights of a training step average to 1. In evaluation,
        where no gradient depends on a step alone, each example of a padded pass has the same weight, and all
        weights of the pass average to 1: losses and weighted metrics are those of the records.

        Args:
            weights: float32 [b] (``StepPlan.weights``).
        """
        order = self._pipeline.order
        if self._spec.training:
            rows = tf.cast(tf.shape(weights)[0], tf.float32)
            return weights * rows / tf.maximum(tf.reduce_sum(weights), tf.keras.backend.epsilon())
        rows_of_pass = order.steps_per_epoch * order.global_batch_size
        return weights * (rows_of_pass / len(self._pipeline.reader.table))
