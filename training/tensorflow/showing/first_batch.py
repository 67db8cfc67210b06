"""Show the first batch of a run in TensorBoard, as the model sees it. With TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from shardmill.training.config import TrainConfig
from shardmill.training.results.tensorboard_log import TensorBoardLog
from shardmill.training.run.showing.pictures import NUM_SHOWN, log_training_examples
from shardmill.training.tensorflow.augment_batches import BatchAugment


def log_first_batch(
    log: TensorBoardLog,
    config: TrainConfig,
    strategy: Any,
    batch: Any,
    words: Callable[[Any, int], str],
    num_mask_classes: int | None = None,
) -> None:
    """Write the first examples of a batch after all augmentation.

    Args:
        log: gets the picture, at step 0.
        config: the configuration of the run.
        strategy: the strategy of the run; of several replicas the first one's rows are shown.
        batch: images, labels and the parameters of augmentation, as a training step takes them.
        words: labels and a row -> its label for people.
        num_mask_classes: the number of classes, if the labels are masks.
    """
    rows = tf.nest.map_structure(
        lambda part: strategy.experimental_local_results(part)[0][:NUM_SHOWN], dict(batch)
    )
    images = BatchAugment(config.augment)(rows["images"], rows.get("parameters", {}))
    labels = tf.nest.map_structure(np.asarray, rows["labels"])
    told = [words(labels, row) for row in range(len(images))]
    masks = None if num_mask_classes is None else labels
    log_training_examples(
        log,
        np.asarray(images),
        told,
        mixed=config.augment.mixes,
        masks=masks,
        num_classes=num_mask_classes or 0,
    )
