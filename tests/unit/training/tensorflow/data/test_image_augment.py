"""Augmentations that a graph applies give the pixels that numpy gives, where TensorFlow decodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import open_dataset
from shardmill.training.augment.kinds.flips import Flips
from shardmill.training.augment.kinds.quarter_turns import QuarterTurns
from tests.samples.datasets.published import coloured, publish


@pytest.mark.parametrize("reading", [{"decoder": "tensorflow"}, {"mode": "streaming"}], ids=str)
def test_the_graph_and_numpy_flip_and_turn_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: dict[str, Any]
) -> None:
    publish(tmp_path, coloured({"train": {"a": 24, "b": 16}}, size=(20, 30)), name="set")
    augment = {"horizontal_flip": True, "vertical_flip": True, "quarter_turns": True}

    def images(settings: dict[str, bool]) -> Any:
        dataset = open_dataset("set@1", root=tmp_path, **reading)
        batches = dataset.tf("train", batch_size=8, image_size=16, seed=3, augment=settings)
        return np.concatenate([np.array(part) for part, *_ in batches])

    in_graph = images(augment)
    for kind in (Flips, QuarterTurns):
        monkeypatch.setattr(kind, "is_in_graph", False)
    assert np.array_equal(images(augment), in_graph)
    unflipped = images(dict.fromkeys(augment, False))
    changed = (in_graph != unflipped).any(axis=(1, 2, 3)).sum()
    assert 25 <= changed <= 40, "seven of eight images are mirrored or turned"
