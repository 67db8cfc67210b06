"""The largest batch that fits: tried with real steps, in a process that may die of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.infra.processes.process import own_peak_rss_bytes
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.frameworks import start
from shardmill.training.ranks.cluster import Meeting
from shardmill.training.run.files.identity import run_identity
from shardmill.training.run.files.settled import Settled, read_settled, run_record, settled_by
from shardmill.training.run.memory.largest_batch import find_largest_batch
from shardmill.training.run.memory.try_batches import TriedSteps, fitting_sizes
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish

pytest.importorskip("tensorflow")

PLENTY = 1 << 60


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    counts = {"train": {"a": 100, "b": 60}}
    return publish(tmp_path_factory.mktemp("sets"), coloured(counts, size=(8, 8)), name="set")


def config(*overrides: str) -> TrainConfig:
    base = ["data.image_size=8", "data.global_batch_size=auto"]
    return load_settings(TrainConfig, section="train", overrides=[*base, *overrides])


def sizes(version: DatasetVersion, ram_bytes: int, *overrides: str, num_ranks: int = 1) -> list[int]:
    asked = config(*overrides)
    steps = TriedSteps(asked, version, start("tensorflow", asked))
    tried = fitting_sizes(asked, steps, ram_bytes, num_ranks)
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
    assert sizes(version, ram_bytes, f"model.name=tests.samples.models.{model}", *more) == expected


@pytest.mark.parametrize(
    ("model", "num_ranks", "shares", "expected"),
    [
        ("hungry_model", 2, "equal", [2, 4, 8]),
        ("linear_model", 3, "measured", [3, 6, 12]),  # ten steps of all ranks an epoch are left
        ("hungry_model", 2, "[1, 4]", [5]),  # of ten examples one rank would take eight
        ("linear_model", 1, "[1, 4]", [1, 2, 4, 8, 16]),
    ],
)
def test_ranks_share_a_step(
    version: DatasetVersion, model: str, num_ranks: int, shares: str, expected: list[int]
) -> None:
    settings = [f"model.name=tests.samples.models.{model}", f"ranks.shares={shares}"]
    assert sizes(version, PLENTY, *settings, num_ranks=num_ranks) == expected


def test_ranks_share_the_memory_of_their_host(version: DatasetVersion) -> None:
    enough = 2 * own_peak_rss_bytes() + (1 << 30)
    linear = "model.name=tests.samples.models.linear_model"
    assert sizes(version, enough, linear, num_ranks=2) == [2, 4, 8, 16]
    assert sizes(version, enough, linear, num_ranks=8) == []


def test_the_size_is_found_in_a_process_of_its_own_and_kept(version: DatasetVersion, tmp_path: Path) -> None:
    hungry = config("model.name=tests.samples.models.hungry_model", "ranks.workers=2", "run.devices=cpu:2")
    root = Path(version.storage.location).parent
    found = find_largest_batch(hungry, version, root)
    assert found == 8
    settled = settled_by(hungry, found)
    (tmp_path / "run.json").write_bytes(run_record(run_identity(hungry, version), hungry, settled))
    assert read_settled(tmp_path) == settled
    assert settled.with_batch_size(hungry).data.batch_size == 8
    assert settled.notes(hungry) == ["data.global_batch_size = 'auto' found 8"]


@pytest.mark.slow
def test_ranks_that_an_outer_system_started_share_a_step(version: DatasetVersion) -> None:
    """Rank 0 tries, while the others wait for it."""
    hungry = config("model.name=tests.samples.models.hungry_model", "run.accumulate_steps=2")
    place = Meeting(0, 3, "localhost", 1)
    assert find_largest_batch(hungry, version, Path(version.storage.location).parent, place) == 12


@pytest.mark.slow
def test_a_run_of_ranks_keeps_the_size_that_it_found(version: DatasetVersion, tmp_path: Path) -> None:
    """With one rank, a step no longer fits: it goes on with the same global batch, in parts."""
    root = Path(version.storage.location).parent
    base = [
        "model.name=tests.samples.models.hungry_model",
        "optimizer.schedule=constant",
        "run.trace_records=true",
    ]
    ranks = config(*base, "ranks.workers=2", "run.devices=cpu:2", "run.epochs=1")
    found = train_dataset("set", ranks, root=root, runs=tmp_path)
    assert found is not None
    assert (found["global_batch_size"], found["num_replicas"], found["steps"]) == (8, 2, 20)
    assert "data.global_batch_size = 'auto' found 8" in found["notes"]

    alone = config(*base, "ranks.workers=1", "run.devices=cpu:1", "run.epochs=2")
    longer = train_dataset("set", alone, root=root, runs=tmp_path)
    assert longer is not None
    assert longer["run_dir"] == found["run_dir"]
    assert (longer["global_batch_size"], longer["num_replicas"], longer["steps"]) == (8, 1, 40)
    assert "taken in 2 parts" in " ".join(longer["notes"])
    lines = (Path(longer["run_dir"]) / "consumed.jsonl").read_text().splitlines()
    epochs = [[json.loads(line) for line in lines[:20]], [json.loads(line) for line in lines[20:]]]
    for epoch in epochs:
        assert len({record for step in epoch for record in step["ids"]}) == 160


def test_other_commands_want_a_number() -> None:
    with pytest.raises(ConfigError, match="this needs a number"):
        _ = config().data.batch_size
    assert Settled(1).with_batch_size(config()) == config()


@pytest.mark.parametrize("value", ["largest", 0, -1, 1.5, True])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="give 'auto', or a number"):
        TrainConfig.model_validate({"data": {"global_batch_size": value}})
