"""Masks with PyTorch: the batches of every other reader, or a refusal in words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.torch.data import Examples
from tests.samples.images.masks import make_masked

_CLASSES = '["ground", "disc", "box"]'


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory, tensorflow_python: str) -> Dataset:
    """A dataset with masks; Beam is in the other environment."""
    made = tmp_path_factory.mktemp("masked")
    source = make_masked(made / "photos", 16)
    settings = (
        "source.kind=masks",
        f"source.masks.classes={_CLASSES}",
        "image.size=96",
        "failure_budget=0.5",
    )
    told = [word for setting in settings for word in ("--set", setting)]
    command = [
        tensorflow_python,
        "-m",
        "shardmill.beam_jobs.prepare",
        str(source),
        "--dataset",
        "d",
        "--root",
    ]
    subprocess.run([*command, str(made / "root"), *told], check=True, cwd=Path(__file__).parents[2])
    return open_dataset("d", root=made / "root")


@pytest.mark.parametrize("workers", [0, 2])
def test_masks_are_those_of_the_arrays(masked: Dataset, workers: int) -> None:
    loader = masked.torch("train", batch_size=4, image_size=32, num_workers=workers, seed=1)
    batches = masked.batches("train", batch_size=4, image_size=32, seed=1)
    for torch_batch, batch in zip(loader, batches, strict=True):
        assert torch_batch.labels.dtype == torch.uint8
        assert torch_batch.labels.tolist() == batch.labels.tolist()
        assert torch_batch.images.permute(0, 2, 3, 1).tolist() == batch.images.tolist()


def test_what_loses_masks_is_refused(masked: Dataset) -> None:
    with pytest.raises(UsageError, match="whole images with masks"):
        masked.torch("train", batch_size=4, image_size=None, training=False)
    with pytest.raises(UsageError, match="single examples have only labels of whole images"):
        Examples(masked.reader("train"), image_size=32)
    with pytest.raises(ConfigError, match="without their masks"):
        masked.torch("train", batch_size=4, image_size=32, preload=True)
