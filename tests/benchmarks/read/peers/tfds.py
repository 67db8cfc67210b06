"""TensorFlow Datasets: ``builder_from_directory`` over exported shards, decoding left to a fused kernel.

That is what its performance guide advises; by default it decodes whole images, at four fifths of the rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from tests.benchmarks.read.peers.reading import BATCH, main
from tests.benchmarks.read.peers.tfdata import fused


def skip_decoding(work: Path, out: Path) -> Iterator[Any]:
    builder = tfds.builder_from_directory(str(work / "plain"))
    dataset = builder.as_dataset(
        split="train",
        shuffle_files=True,
        decoders=tfds.decode.PartialDecoding(
            {"image": True, "label": True}, decoders={"image": tfds.decode.SkipDecoding()}
        ),
        read_config=tfds.ReadConfig(interleave_cycle_length=8),
    )
    dataset = dataset.repeat().shuffle(2048)
    dataset = dataset.map(
        lambda row: (fused(row["image"]), row["label"]), num_parallel_calls=tf.data.AUTOTUNE
    )
    dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    return iter(dataset)


if __name__ == "__main__":
    main({"skip-decoding": skip_decoding})
