"""``tf.data`` over TFRecords: tuned as its performance guide has it, and as tutorials have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.benchmarks.read.peers.reading import BATCH, RATIO, SCALE, SIZE, main

_FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
_WHOLE = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])


def window(shape: Any) -> Any:
    """A random window of an image: int32 [4], y, x, height, width."""
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape, _WHOLE, min_object_covered=0.0, area_range=SCALE, aspect_ratio_range=RATIO
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def fused(image: Any) -> Any:
    """Decode no more of a JPEG than its window."""
    pixels = tf.io.decode_and_crop_jpeg(image, window(tf.io.extract_jpeg_shape(image)), channels=3)
    pixels = tf.cast(tf.image.resize(pixels, [SIZE, SIZE]), tf.uint8)
    return tf.image.random_flip_left_right(pixels)


def tuned(work: Path, out: Path) -> Iterator[Any]:
    """Interleaved files, fused decoding and cropping, everything parallel and autotuned, order given up."""
    options = tf.data.Options()
    options.deterministic = False
    files = tf.data.Dataset.list_files(str(work / "plain" / "train-*.tfrecord")).repeat()
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)

    def example(serialized: Any) -> Any:
        parsed = tf.io.parse_single_example(serialized, _FEATURES)
        return fused(parsed["image"]), parsed["label"]

    dataset = records.shuffle(2048).map(example, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE).with_options(options)
    return iter(dataset)


def tutorial(work: Path, out: Path) -> Iterator[Any]:
    """One ``map`` that decodes the whole image, crops, resizes and flips; nothing parallel, no prefetch."""
    files = sorted(str(path) for path in (work / "plain").glob("train-*.tfrecord"))

    def example(serialized: Any) -> Any:
        parsed = tf.io.parse_single_example(serialized, _FEATURES)
        image = tf.io.decode_jpeg(parsed["image"], channels=3)
        top, left, height, width = tf.unstack(window(tf.shape(image)))
        image = tf.image.crop_to_bounding_box(image, top, left, height, width)
        image = tf.image.random_flip_left_right(tf.image.resize(image, [SIZE, SIZE]))
        return tf.cast(tf.ensure_shape(image, [SIZE, SIZE, 3]), tf.uint8), parsed["label"]

    dataset = tf.data.TFRecordDataset(files).shuffle(1000).repeat().map(example)
    return iter(dataset.batch(BATCH, drop_remainder=True))


if __name__ == "__main__":
    main({"tuned": tuned, "tutorial": tutorial})
