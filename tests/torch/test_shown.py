"""``show_batch`` makes the same pictures of PyTorch tensors as of the equal numpy arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shardmill import open_dataset, show_batch
from tests.samples.datasets.published import coloured, publish


def test_tensors_show_the_same_as_arrays(tmp_path: Path) -> None:
    publish(tmp_path, coloured({"train": {"red": 4, "blue": 4}}))
    dataset = open_dataset("sample", tmp_path)
    options = {"training": False, "batch_size": 6, "image_size": 64}
    wanted = show_batch(next(iter(dataset.batches("train", **options))), dataset)
    batch = next(iter(dataset.torch("train", num_workers=0, **options)))
    floats = batch.images.float().div(255).requires_grad_()
    pairs = [(batch, 0), ((floats, batch.labels), 0), ((floats.bfloat16(), batch.labels), 1)]
    for given, most in [*pairs, ([[*batch.images], batch.labels], 0)]:
        found = show_batch(given, dataset)
        for one, other in zip(found.cells, wanted.cells, strict=True):
            assert one.caption == other.caption
            assert np.abs(one.pixels.astype(int) - other.pixels).max() <= most  # bfloat16 has 8 bits
