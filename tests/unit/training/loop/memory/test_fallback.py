"""Steps that do not fit into memory: the allocator of TensorFlow really refuses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.dataset.version import DatasetVersion
from infra.errors import OutOfMemory
from infra.settings import load_settings
from tests.samples.published import coloured, publish
from tests.samples.sessions import last_state, trained
from training.config import AugmentSettings, TrainConfig
from training.loop.memory.fallback import more_parts, within_memory
from training.train import train_dataset

pytest.importorskip("tensorflow")
# Keras converts variables to NumPy arrays so, when it saves weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

COUNTS = {"train": {"a": 12, "b": 8}, "validation": {"a": 3, "b": 2}}
HUNGRY = [
    "model.name=tests.samples.hungry_model", "data.image_size=8", "data.global_batch_size=8", "run.epochs=2",
    "run.trace_records=true", "data.seed=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(tmp_path_factory.mktemp("sets"), coloured(COUNTS, size=(8, 8)), name="set")


def test_a_run_whose_steps_do_not_fit_goes_on_in_parts(version: DatasetVersion, tmp_path: Path) -> None:
    """It ends as one that took its steps in parts from the beginning, with every record."""
    config = load_settings(TrainConfig, section="train", overrides=HUNGRY)
    root = Path(version.storage.location).parent
    result = train_dataset("set", config, root=root, runs=tmp_path / "runs")
    run_dir = Path(result["run_dir"])
    assert "taken in 2 parts" in " ".join(result["notes"])
    assert json.loads((run_dir / "run.json").read_text())["settled"]["accumulate_steps"] == 2
    consumed = [json.loads(line) for line in (run_dir / "consumed.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["step"]) for line in consumed] == [
        (e, s) for e in range(2) for s in range(3)
    ]
    trained(version, tmp_path / "parts", *HUNGRY, "run.accumulate_steps=2")
    found, expected = last_state(run_dir), last_state(tmp_path / "parts")
    assert found.keys() == expected.keys()
    assert [name for name in expected if not np.allclose(found[name], expected[name], rtol=1e-6)] == []


def test_a_step_that_fits_in_no_parts_ends_the_run() -> None:
    asked: list[int] = []
    remembered: list[int] = []

    def attempt(config: TrainConfig) -> Any:
        asked.append(config.run.accumulate_steps)
        raise OutOfMemory("too much")

    with pytest.raises(OutOfMemory):
        within_memory(TrainConfig(), 6, attempt, remembered.append)
    assert asked == [1, 2, 6]
    assert remembered == [2, 6]


@pytest.mark.parametrize(
    ("parts", "rows", "mixup", "expected"),
    [
        (1, 8, 0.0, 2),
        (2, 8, 0.0, 4),
        (8, 8, 0.0, None),
        (1, 9, 0.0, 3),
        (1, 7, 0.0, 7),
        (2, 8, 0.2, 4),
        (4, 8, 0.2, None),  # a part needs an even number of examples to mix
    ],
)
def test_the_next_number_of_parts(parts: int, rows: int, mixup: float, expected: int | None) -> None:
    assert more_parts(parts, rows, AugmentSettings(mixup=mixup)) == expected
