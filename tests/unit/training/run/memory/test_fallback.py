"""Steps that do not fit into memory: the allocator of TensorFlow really refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import OutOfMemory
from shardmill.infra.settings import load_settings
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.run.files.settled import read_settled, run_record, settled_by
from shardmill.training.run.memory.fallback import MoreParts, more_parts, settle_parts_of_ranks
from shardmill.training.run.sharing.division import equal_division, unit_of_rows
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.peers import Alone
from tests.samples.training.rounding import EPSILON, apart
from tests.samples.training.sessions import last_state, trained

pytest.importorskip("tensorflow")
# Keras converts variables to NumPy arrays so, when it saves weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

COUNTS = {"train": {"a": 12, "b": 8}, "validation": {"a": 3, "b": 2}}
HUNGRY = [
    "model.name=tests.samples.models.hungry_model", "data.image_size=8", "data.global_batch_size=8",
    "run.epochs=2", "run.trace_records=true", "data.seed=1",
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
    assert apart(found, expected) <= 16 * EPSILON


@pytest.mark.slow
def test_unequal_ranks_whose_step_does_not_fit_go_on_in_parts(
    version: DatasetVersion, tmp_path: Path
) -> None:
    """Three ranks with 8, 9 and 9 of 26 examples have no memory. With 8, 8 and 10 each takes two parts."""
    root = Path(version.storage.location).parent
    overrides = [*HUNGRY, "data.global_batch_size=26", "ranks.workers=3", "run.devices=cpu:3"]
    config = load_settings(TrainConfig, section="train", overrides=overrides)
    result = train_dataset("set", config, root=root, runs=tmp_path / "runs")
    assert result is not None
    assert "taken in 2 parts" in " ".join(result["notes"])
    assert result["restarts"][0]["message"].startswith("reported: a training step does not fit into memory")
    trained(version, tmp_path / "alone", *HUNGRY, "data.global_batch_size=26", "run.accumulate_steps=13")
    found, expected = last_state(Path(result["run_dir"])), last_state(tmp_path / "alone")
    assert apart(found, expected) <= 256 * EPSILON


def test_a_step_that_fits_in_no_parts_ends_the_run(tmp_path: Path) -> None:
    config = TrainConfig()
    identity = {"dataset": "set@1", "config": config.model_dump(mode="json")}
    (tmp_path / "run.json").write_bytes(run_record(identity, config, settled_by(config)))
    parts, tried = MoreParts(config, settled_by(config), tmp_path, 6, Alone()), []
    for _ in range(2):
        parts.after(OutOfMemory("too much"))
        tried.append((parts.config.run.accumulate_steps, read_settled(tmp_path).accumulate_steps))
    assert tried == [(2, 2), (6, 6)]
    with pytest.raises(OutOfMemory, match="too much"):
        parts.after(OutOfMemory("too much"))


def test_several_ranks_end_together(tmp_path: Path) -> None:
    parts = MoreParts(TrainConfig(), settled_by(TrainConfig()), tmp_path, 6, Alone(0, 2))
    with pytest.raises(OutOfMemory, match="too much"):
        parts.after(OutOfMemory("too much"))


@pytest.mark.parametrize(
    ("size", "num_ranks", "mixup", "expected"),
    [
        (16, 2, 0.0, [2, 4, 8, None]),
        (16, 3, 0.0, [2, 4, None]),  # 5, 5 and 6 examples, then 4, 6 and 6, then 4, 4 and 8
        (16, 3, 0.2, [2, None]),  # pairs in each part
        (5, 2, 0.0, [None]),
    ],
)
def test_ranks_take_steps_in_more_parts(
    tmp_path: Path, size: int, num_ranks: int, mixup: float, expected: list[int | None]
) -> None:
    config = load_settings(
        TrainConfig, section="train", overrides=["data.global_batch_size=auto", f"augment.mixup={mixup}"]
    )
    (tmp_path / "run.json").write_bytes(
        run_record(
            {"dataset": "set@1", "config": config.model_dump(mode="json")}, config, settled_by(config, size)
        )
    )
    assert [settle_parts_of_ranks(config, tmp_path, num_ranks) for _ in expected] == expected
    settled = read_settled(tmp_path)
    assert settled is not None
    assert settled.global_batch_size == size
    for number in expected[:-1]:
        unit = unit_of_rows(with_parts(config, number))
        assert all(rows % unit == 0 for rows in equal_division(size, num_ranks, unit).rows)


def with_parts(config: TrainConfig, number: int | None) -> TrainConfig:
    return config.model_copy(update={"run": config.run.model_copy(update={"accumulate_steps": number})})


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
