"""Open the pipeline of a published split, for ``Dataset.tf``."""

from __future__ import annotations

from shardmill.training.config.reading import Mode, ReadingSettings
from shardmill.training.reading import RecordReader
from shardmill.training.reading.example_options import ExampleSpec
from shardmill.training.reading.records.objects import SplitObjects
from shardmill.training.tensorflow.data.augmented_batches import augmented_on_host
from shardmill.training.tensorflow.data.indexed import IndexedPipeline
from shardmill.training.tensorflow.data.pipeline import Pipeline
from shardmill.training.tensorflow.data.training_input import InputSettings, open_images


def open_examples(
    records: RecordReader,
    asked: ExampleSpec,
    reading: ReadingSettings,
    num_classes: int,
    objects: SplitObjects | None = None,
) -> Pipeline:
    """Open the pipeline of a split: for training with augmentation and a cache, else without either.

    Args:
        records: the records of the split; whole images for training through the cache that they shall have.
        asked: the batches.
        reading: how records are read.
        num_classes: the length of the labels of mixed examples.
        objects: the objects in the images, which are the labels then; None: the labels of the split.

    Raises:
        ConfigError: the settings contradict each other, or need more memory than they allow.
    """
    if not asked.training or asked.image_size is None:
        return IndexedPipeline(
            records,
            asked.order,
            asked.image_size,
            decoder=reading.decoder,
            image_channels=asked.data.image_channels,
            objects=objects,
            fit=asked.fit,
        )
    # Here "auto" means the exact order: a caller who names a seed and an epoch expects exactly these.
    mode: Mode = "streaming" if reading.mode == "streaming" else "indexed"
    settings = InputSettings(asked.data, reading.model_copy(update={"mode": mode}), asked.augment, objects)
    opened = open_images(settings, records, asked.order, asked.image_size)
    return augmented_on_host(opened.pipeline, asked.augment, num_classes)
