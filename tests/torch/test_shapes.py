"""Polygons, key points and oriented boxes with PyTorch: the batches of every other reader."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset

FEATURES = [
    "objects/polygons", "objects/ring_points", "objects/rings", "objects/keypoints", "objects/visibility",
    "objects/corners",
]  # fmt: skip


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory, tensorflow_python: str) -> Dataset:
    """A dataset with shapes; Beam is in the other environment."""
    made = tmp_path_factory.mktemp("shapes")
    draw = "import sys, pathlib; from tests.samples.images.shape_pictures import draw_shapes; "
    draw += "draw_shapes(*map(pathlib.Path, sys.argv[1:]))"
    command = [tensorflow_python, "-c", draw, str(made / "source"), str(made / "root")]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    return open_dataset("d", root=made / "root")


@pytest.mark.parametrize(
    "options",
    [
        {"augment": {"vertical_flip": True}, "num_workers": 0},
        {"augment": {"quarter_turns": True}, "num_workers": 2},
        {"image_size": None, "training": False},
    ],
)
def test_shapes_are_those_of_the_arrays(shaped: Dataset, options: dict[str, Any]) -> None:
    asked = {"batch_size": 4, "image_size": 48, "features": FEATURES, "epoch": 1, **options}
    loader = shaped.torch("train", **asked)
    asked.pop("num_workers", None)
    compared = 0
    for torch_batch, batch in zip(loader, shaped.batches("train", **asked), strict=True):
        for name, (values, lengths) in batch.features.items():
            assert torch_batch.features[name].lengths.tolist() == lengths.tolist()
            np.testing.assert_array_equal(torch_batch.features[name].values.numpy(), values)
        compared += 1
    assert compared == 3
