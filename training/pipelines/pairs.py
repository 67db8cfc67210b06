"""A pipeline's batches in the form that ``model.fit`` takes: (images, labels), or with weights."""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf

from training.pipelines.pipeline import Pipeline


def as_pairs(pipeline: Pipeline, start: int, stop: int, last_batch: Literal["pad", "drop", "partial"]) -> Any:
    """A dataset of the steps ``start`` to ``stop``.

    Args:
        pipeline: of one split.
        start, stop: epoch * steps_per_epoch + step.
        last_batch: with "pad", and where classes weigh differently, elements have weights: 0 for padding; for
            an example 1, or what its class weighs, scaled so that the weights of a step average to 1 over its
            examples.
    """
    batches = pipeline.dataset(start, stop)
    weighted = last_batch == "pad" or pipeline.class_weights is not None
    element = _weighted if weighted else _pair
    rest = len(pipeline.reader.table) % pipeline.order.global_batch_size
    if last_batch != "partial" or not rest:
        return batches.map(element)
    # Not `skip`: it would read and decode all that it skips.
    full, tail = pipeline.dataset(start, stop - 1), pipeline.dataset(stop - 1, stop)
    return full.map(element).concatenate(
        tail.map(lambda batch: tuple(column[:rest] for column in element(batch)))
    )


def _pair(batch: dict[str, Any]) -> tuple[Any, ...]:
    return batch["images"], batch["labels"]


def _weighted(batch: dict[str, Any]) -> tuple[Any, ...]:
    return batch["images"], batch["labels"], _weights(batch["weights"])


def _weights(weights: Any) -> Any:
    """float32 [b]: the weights of a step, which add up to 1 or are 0 and 1, times its number of examples."""
    real = tf.reduce_sum(tf.cast(weights > 0, tf.float32))
    return weights * real / tf.maximum(tf.reduce_sum(weights), tf.keras.backend.epsilon())
