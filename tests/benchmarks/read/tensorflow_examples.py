"""Stored examples by TensorFlow's own operations only: where they are, what is in one, a window of its image.

TensorFlow is imported on use: importing this module must not start it.
"""

from __future__ import annotations

from typing import Any

from shardmill import Dataset
from shardmill.training.config import AugmentSettings


def train_files(dataset: Dataset) -> tuple[list[str], str]:
    """(paths, compression) of the train split, as ``TFRecordDataset`` takes them."""
    version = dataset.version
    paths = [str(version.storage.local_path(shard.path)) for shard in version.shards("train")]
    return paths, "GZIP" if version.manifest.container == "gzip" else ""


def parse(serialized: Any) -> Any:
    """Image and label of an example."""
    import tensorflow as tf

    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    return tf.io.parse_single_example(serialized, features)


def random_window(shape: Any, augment: AugmentSettings) -> tuple[Any, Any]:
    """(begin, size) of a window, int32 [3] both; ``shape``: of the image."""
    import tensorflow as tf

    whole = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape, whole, area_range=augment.scale, aspect_ratio_range=augment.ratio
    )
    return begin, size
