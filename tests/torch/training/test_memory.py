"""Batches that do not fit into memory, with PyTorch: its allocator really refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import OutOfMemory
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.frameworks import start
from shardmill.training.run.memory.try_batches import TriedSteps, fitting_sizes
from shardmill.training.torch.step import out_of_memory
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.torch_runs import assert_same_model

PLENTY = 1 << 60
COUNTS = {"train": {"a": 100, "b": 60}, "validation": {"a": 3, "b": 2}}
HUNGRY = (
    "run.framework=torch", "run.devices=one", "model.name=tests.samples.models.hungry_torch_model",
    "data.image_size=8", "run.epochs=1", "run.trace_records=true", "run.log_pictures=false",
)  # fmt: skip


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(tmp_path_factory.mktemp("sets"), coloured(COUNTS, size=(8, 8)), name="set")


def config(*overrides: str) -> TrainConfig:
    return load_settings(TrainConfig, section="train", overrides=[*HUNGRY, *overrides])


@pytest.mark.parametrize(
    ("model", "ram_bytes", "more", "expected"),
    [
        ("hungry_torch_model", PLENTY, [], [1, 2, 4]),  # eight examples need a petabyte
        ("torch_model", PLENTY, [], [1, 2, 4, 8, 16]),  # ten steps an epoch are left
        ("torch_model", PLENTY, ["augment.mixup=0.2"], [2, 4, 8, 16]),
        ("torch_model", 1 << 20, [], []),
    ],
)
def test_sizes_are_tried_until_one_does_not_fit(
    version: DatasetVersion, model: str, ram_bytes: int, more: list[str], expected: list[int]
) -> None:
    asked = config(f"model.name=tests.samples.models.{model}", "data.global_batch_size=auto", *more)
    tried = fitting_sizes(asked, TriedSteps(asked, version, start("torch", asked)), ram_bytes)
    assert [trial.global_batch_size for trial in tried] == expected


def test_a_run_finds_its_batch_size_and_another_goes_on_in_parts(
    version: DatasetVersion, tmp_path: Path
) -> None:
    root = Path(version.storage.location).parent
    found = train_dataset("set", config("data.global_batch_size=auto"), root=root, runs=tmp_path)
    assert found is not None
    assert found["global_batch_size"] == 4
    assert "data.global_batch_size = 'auto' found 4" in found["notes"]

    larger = config("data.global_batch_size=8")
    in_parts = train_dataset("set", larger, root=root, runs=tmp_path / "fallback")
    assert in_parts is not None
    run_dir = Path(in_parts["run_dir"])
    assert "taken in 2 parts" in " ".join(in_parts["notes"])
    assert json.loads((run_dir / "run.json").read_text())["settled"]["accumulate_steps"] == 2
    assert in_parts["steps"] == 20
    assert len((run_dir / "consumed.jsonl").read_text().splitlines()) == 20
    planned = train_dataset(
        "set", config("data.global_batch_size=8", "run.accumulate_steps=2"), root=root, runs=tmp_path
    )
    assert planned is not None
    assert_same_model(run_dir, Path(planned["run_dir"]))


@pytest.mark.slow
def test_ranks_whose_step_does_not_fit_go_on_in_parts(version: DatasetVersion, tmp_path: Path) -> None:
    root, size = Path(version.storage.location).parent, "data.global_batch_size=16"
    found = train_dataset("set", config(size, "ranks.workers=2"), root=root, runs=tmp_path)
    assert found is not None
    assert "taken in 2 parts" in " ".join(found["notes"])
    assert found["restarts"][0]["message"].startswith("reported: a training step does not fit into memory")
    assert (found["steps"], found["num_replicas"]) == (10, 2)
    planned = train_dataset("set", config(size, "run.accumulate_steps=4"), root=root, runs=tmp_path)
    assert planned is not None
    assert_same_model(Path(found["run_dir"]), Path(planned["run_dir"]))


def test_errors_of_the_allocator_are_recognised_and_others_are_not() -> None:
    with pytest.raises(OutOfMemory, match="does not fit into memory"), out_of_memory():
        torch.empty(1 << 58)
    with pytest.raises(OutOfMemory, match="CUDA out of memory"), out_of_memory():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(RuntimeError, match="shapes"), out_of_memory():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
