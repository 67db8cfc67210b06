"""``model.fit`` on ``open_dataset(...).tf(...)``, the code that tutorials show: each epoch is another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardmill import open_dataset
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.tutorial_fit import OPTIONS, fit

NUM_RECORDS = 48
COUNTS = {"train": {"a": 27, "b": 21}, "validation": {"a": 6, "b": 5}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    publish(folder, coloured(COUNTS, size=(8, 8)), name="set")
    return folder


def epochs_of(root: Path, first: int, count: int) -> list[list[int]]:
    """The sums of the pixels in each epoch, read without TensorFlow, each record once."""
    batches = open_dataset("set", root).batches("train", first_epoch=first, **OPTIONS)
    epochs, orders = [], set()
    for _ in range(count):
        epoch = list(batches)
        ordinals = [ordinal for batch in epoch for ordinal in batch.ordinals.tolist()]
        assert sorted(ordinals) == list(range(NUM_RECORDS))
        orders.add(tuple(ordinals))
        epochs.append([int(image.astype(int).sum()) for batch in epoch for image in batch.images])
    assert len(orders) == count
    return epochs


def test_ten_epochs_on_one_device(root: Path) -> None:
    pytest.importorskip("tensorflow")
    accuracy, seen = fit(str(root), 10, first_epoch=3)
    assert accuracy == 1.0
    assert seen == epochs_of(root, first=3, count=10)


def test_three_epochs_under_a_mirrored_strategy(root: Path) -> None:
    """Two logical devices share each batch. Before it trains, Keras looks at a batch: an iteration."""
    argv = [sys.executable, "-m", "tests.samples.training.tutorial_fit", str(root), "2", "3"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    accuracy, seen = json.loads(done.stdout.splitlines()[-1])
    assert accuracy == 1.0
    assert seen == epochs_of(root, first=1, count=3)
