"""The largest batch that fits: tried with real steps, in a process that may die of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.dataset.version import DatasetVersion
from infra.errors import ConfigError
from infra.settings import load_settings
from tests.samples.published import coloured, publish
from training.config import TrainConfig
from training.loop.memory.largest_batch import find_largest_batch
from training.loop.memory.sizes import fitting_sizes
from training.runs.identity import run_identity
from training.runs.settled import Settled, read_settled, run_record, settled_by
from training.train import train_dataset

pytest.importorskip("tensorflow")

PLENTY = 1 << 60


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    counts = {"train": {"a": 100, "b": 60}}
    return publish(tmp_path_factory.mktemp("sets"), coloured(counts, size=(8, 8)), name="set")


def config(*overrides: str) -> TrainConfig:
    base = ["data.image_size=8", "data.global_batch_size=auto"]
    return load_settings(TrainConfig, section="train", overrides=[*base, *overrides])


def sizes(version: DatasetVersion, ram_bytes: int, *overrides: str) -> list[int]:
    from training.loop.memory.trial import TensorFlowSteps
    from training.ranks import tensorflow_runtime

    tensorflow_runtime.start(seed=0)
    asked = config(*overrides)
    tried = fitting_sizes(asked, TensorFlowSteps(asked, version), ram_bytes)
    return [trial.global_batch_size for trial in tried]


@pytest.mark.parametrize(
    ("model", "ram_bytes", "more", "expected"),
    [
        ("hungry_model", PLENTY, [], [1, 2, 4]),  # eight examples need a petabyte
        ("linear_model", PLENTY, [], [1, 2, 4, 8, 16]),  # ten steps an epoch are left
        ("linear_model", PLENTY, ["run.accumulate_steps=3"], [3, 6, 12]),
        ("linear_model", 1 << 20, [], []),
    ],
)
def test_sizes_are_tried_until_one_does_not_fit(
    version: DatasetVersion, model: str, ram_bytes: int, more: list[str], expected: list[int]
) -> None:
    assert sizes(version, ram_bytes, f"model.name=tests.samples.{model}", *more) == expected


def test_the_size_is_found_in_a_process_of_its_own_and_kept(version: DatasetVersion, tmp_path: Path) -> None:
    hungry = config("model.name=tests.samples.hungry_model")
    root = Path(version.storage.location).parent
    found = find_largest_batch(hungry, version, root)
    assert found == 4
    settled = settled_by(hungry, found)
    (tmp_path / "run.json").write_bytes(run_record(run_identity(hungry, version), hungry, settled))
    assert read_settled(tmp_path) == settled
    assert settled.with_batch_size(hungry).data.batch_size == 4
    assert settled.notes(hungry) == ["data.global_batch_size = 'auto' found 4"]


def test_other_commands_and_ranks_want_a_number(version: DatasetVersion, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this needs a number"):
        _ = config().data.batch_size
    with pytest.raises(ConfigError, match="several ranks"):
        train_dataset(
            "set", config("ranks.workers=2"), root=Path(version.storage.location).parent, runs=tmp_path
        )
    assert Settled(1).with_batch_size(config()) == config()


@pytest.mark.parametrize("value", ["largest", 0, -1, 1.5, True])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="give 'auto', or a number"):
        TrainConfig.model_validate({"data": {"global_batch_size": value}})
