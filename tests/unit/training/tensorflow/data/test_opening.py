"""Memory and rate of the pipelines stay as they are over many epochs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.samples.datasets.published import coloured, publish

# Reads the epochs of one dataset object, as a run does, and notes resident memory after each.
_READ = """
import json, sys
import psutil
from shardmill.training.tensorflow import starting
starting.start()
from shardmill.training.config import TrainConfig
from shardmill import open_dataset
from shardmill.training.order.from_settings import order_from_settings
from shardmill.training.reading.opening import open_for_run
from shardmill.training.tensorflow.data.opening import open_pipeline
root, epochs, overrides = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
dataset = open_dataset("set", root=root)
config = TrainConfig.model_validate(overrides)
reader = dataset.reader("train")
order = order_from_settings(config.data, reader.table, dataset.classes)
pipeline = open_pipeline(open_for_run(config, reader, order))
batches = iter(pipeline.dataset(0, epochs * order.steps_per_epoch))
resident = []
for _ in range(epochs):
    for _ in range(order.steps_per_epoch):
        next(batches)
    resident.append(psutil.Process().memory_info().rss)
print(json.dumps(resident))
"""

MODES = {
    "indexed": {"decoder": "turbo"},
    "indexed, tensorflow": {"decoder": "tensorflow"},
    "streaming": {"mode": "streaming", "shuffle_buffer": 100},
    "streaming, cached": {"mode": "streaming", "shuffle_buffer": 100, "cache": "memory"},
}


def growth_of(root: Path, epochs: int, mode: str) -> float:
    """Growth of resident memory after the first third of the epochs, at the end against its begin (MiB)."""
    settings = {
        "data": {"global_batch_size": 32, "image_size": 64},
        "reading": {"ram_budget_bytes": 1 << 28, **MODES[mode]},
    }
    command = [sys.executable, "-c", _READ, str(root), str(epochs), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert not done.returncode, done.stderr
    resident = np.array(json.loads(done.stdout)) / 2**20
    third = epochs // 3
    return float(np.median(resident[-third:]) - np.median(resident[third : 2 * third]))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("datasets")
    publish(made, coloured({"train": {"a": 160, "b": 96}}, size=(90, 120)), name="set", shards_per_split=4)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["indexed", "streaming"])
def test_a_dozen_epochs_take_no_more_memory_than_a_few(root: Path, mode: str) -> None:
    assert growth_of(root, 12, mode) < 16


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_fifty_epochs_take_no_more_memory_than_seventeen(root: Path, mode: str) -> None:
    assert growth_of(root, 50, mode) < 8
