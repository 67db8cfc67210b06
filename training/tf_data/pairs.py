"""Convert batches to the form that ``model.fit`` takes: (images, labels), or with weights."""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf

from training.reading.records.columns import NO_FEATURES, FeatureColumns
from training.reading.records.objects import FOLLOWING
from training.tf_data.features import feature_tensors, label_tensors, object_tensors
from training.tf_data.pipeline import Pipeline

# The key of the sizes of whole images, beside "image" and the features.
SIZE = "image_size"


def as_pairs(
    pipeline: Pipeline,
    start: int,
    stop: int,
    last_batch: Literal["pad", "drop", "partial"],
    features: FeatureColumns = NO_FEATURES,
    *,
    ragged: bool = True,
) -> Any:
    """Return a dataset of the steps ``start`` to ``stop``.

    If images are whole, or features stand beside them, the first part of an element is a dict: "image",
    ``SIZE`` int32 [b, 2] of whole images (height and width in pixels), and the features by name.

    Args:
        pipeline: the batches of one split.
        start: the first step (epoch * steps_per_epoch + step).
        stop: the step behind the last one.
        last_batch: with "pad", and with class weights, elements have weights: 0 for padding; for an example
            1, or the weight of its class, scaled so that the weights of a step average to 1 over its
            examples.
        features: the features that stand beside the images. Those of objects are the labels of the pipeline.
        ragged: lists of any length become ``tf.RaggedTensor``; else they are padded.
    """
    batches = pipeline.dataset(start, stop)
    weighted = last_batch == "pad" or pipeline.class_weights is not None
    plain = _weighted if weighted else _pair
    whole = pipeline.image_size is None
    following = [feature.name for feature in features.features if feature.name in FOLLOWING]
    others_of_record = features.without(following)

    def element(batch: dict[str, Any]) -> tuple[Any, ...]:
        beside = {SIZE: batch["sizes"]} if whole else {}
        if following:
            found = object_tensors(batch["labels"], following, ragged=ragged)
            batch = {**batch, "labels": label_tensors(pipeline.reader.table, batch["ordinals"])}
        images, *others = plain(batch)
        if features.features:
            tensors = feature_tensors(others_of_record, batch["ordinals"], ragged=ragged)
            beside |= {
                one.name: (found if one.name in FOLLOWING else tensors)[one.name] for one in features.features
            }
        return ({"image": images, **beside} if beside else images), *others

    rest = len(pipeline.reader.table) % pipeline.order.global_batch_size
    if last_batch != "partial" or not rest:
        return batches.map(element)
    # Not `skip`: it would read and decode every batch that it skips.
    full, tail = pipeline.dataset(start, stop - 1), pipeline.dataset(stop - 1, stop)

    def partial(batch: dict[str, Any]) -> tuple[Any, ...]:
        cut = tf.nest.map_structure(lambda column: column[:rest], element(batch))
        if whole:  # the largest image of the batch may have been padding
            height, width = tf.unstack(tf.reduce_max(cut[0][SIZE], axis=0))
            cut[0]["image"] = cut[0]["image"][:, :height, :width]
            if pipeline.reader.table.mask is not None:
                cut = (cut[0], cut[1][:, :height, :width], *cut[2:])
        return cut  # type: ignore[no-any-return]

    return full.map(element).concatenate(tail.map(partial))


def _pair(batch: dict[str, Any]) -> tuple[Any, ...]:
    return batch["images"], batch["labels"]


def _weighted(batch: dict[str, Any]) -> tuple[Any, ...]:
    return batch["images"], batch["labels"], _weights(batch["weights"])


def _weights(weights: Any) -> Any:
    """Scale the weights of a step so that they average to 1 over its real examples: float32 [b]."""
    real = tf.reduce_sum(tf.cast(weights > 0, tf.float32))
    return weights * real / tf.maximum(tf.reduce_sum(weights), tf.keras.backend.epsilon())
