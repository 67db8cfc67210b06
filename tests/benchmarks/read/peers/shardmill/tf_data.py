"""Shardmill's ``tf.data`` pipeline, by its Python interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardmill import open_dataset
from shardmill.training.config import AugmentSettings
from shardmill.training.tensorflow import starting
from tests.benchmarks.read.peers.reading import BATCH, RATIO, SCALE, SIZE, main

_EPOCHS = 10_000

starting.start()  # importing TensorFlow is no part of the first batch


def _batches(work: Path, container: str) -> Iterator[Any]:
    dataset = open_dataset(f"photographs-{container}", work / "datasets")
    augment = AugmentSettings(scale=SCALE, ratio=RATIO)
    found = dataset.tf("train", batch_size=BATCH, image_size=SIZE, augment=augment, epochs=_EPOCHS)
    return iter(found)


def plain(work: Path, out: Path) -> Iterator[Any]:
    return _batches(work, "none")


def gzip(work: Path, out: Path) -> Iterator[Any]:
    return _batches(work, "gzip")


if __name__ == "__main__":
    main({"tf": plain, "tf-gzip": gzip})
