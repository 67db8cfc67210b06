"""Shardmill's PyTorch loader, by its Python interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch  # noqa: F401  (importing it is no part of the first batch)

from shardmill import open_dataset
from shardmill.training.config import AugmentSettings
from tests.benchmarks.read.peers.reading import BATCH, RATIO, SCALE, SIZE, endless, main


def _batches(work: Path, **loading: Any) -> Iterator[Any]:
    dataset = open_dataset("photographs-none", work / "datasets")
    augment = AugmentSettings(scale=SCALE, ratio=RATIO)
    loader = dataset.torch("train", batch_size=BATCH, image_size=SIZE, augment=augment, **loading)
    return endless(loader, lambda batch: (batch.images.permute(0, 2, 3, 1), batch.labels))


def workers(work: Path, out: Path) -> Iterator[Any]:
    return _batches(work)


def threads(work: Path, out: Path) -> Iterator[Any]:
    return _batches(work, num_workers=0)


if __name__ == "__main__":
    main({"workers": workers, "threads": threads})
