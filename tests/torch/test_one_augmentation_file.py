"""An augmentation of one file acts on the roads of PyTorch too: in this process, and in workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.training.augment.test_one_file import check_roads


@pytest.mark.parametrize("workers", [0, 2])
def test_an_augmentation_of_one_file_acts_on_every_road(tmp_path: Path, workers: int) -> None:
    check_roads(tmp_path, sys.executable, "torch", workers)
