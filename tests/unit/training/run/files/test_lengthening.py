"""More epochs for a run: it goes on as if it had been that long from the beginning, or says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.run.files.identity import run_identity, run_name
from shardmill.training.run.files.lengthening import check_not_past, finished_answer, why_not_continued
from shardmill.training.run.files.settled import Settled, read_settled, run_record, settled_by
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.sessions import last_state

pytest.importorskip("tensorflow")
# Keras converts variables to NumPy arrays so, when it saves weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

BASE = [
    "model.name=tests.samples.models.linear_model", "data.image_size=8", "data.global_batch_size=8",
    "optimizer.schedule=constant", "optimizer.warmup_steps=4",
]  # fmt: skip
COUNTS = {"train": {"a": 12, "b": 8}, "validation": {"a": 3, "b": 2}}


def config(*overrides: str) -> TrainConfig:
    return load_settings(TrainConfig, section="train", overrides=[*BASE, *overrides])


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(tmp_path_factory.mktemp("sets"), coloured(COUNTS, size=(8, 8)), name="set")


@pytest.fixture(scope="module")
def results(version: DatasetVersion, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of a run of two epochs, of the same run lengthened to four, and of one of four epochs."""
    root, folder = Path(version.storage.location).parent, tmp_path_factory.mktemp("runs")

    def trained(runs: str, epochs: int) -> dict[str, Any]:
        return train_dataset("set", config(f"run.epochs={epochs}"), root=root, runs=folder / runs)

    return {"short": trained("one", 2), "longer": trained("one", 4), "whole": trained("two", 4)}


def test_a_lengthened_run_is_that_of_its_length_to_the_last_bit(results: dict[str, Any]) -> None:
    short, longer, whole = (results[name] for name in ("short", "longer", "whole"))
    assert (short["epochs"], longer["epochs"], longer["unchanged"]) == (2, 4, False)
    assert longer["run_dir"] == short["run_dir"]
    found, expected = (last_state(Path(one["run_dir"])) for one in (longer, whole))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert longer["history"] == whole["history"]
    assert longer["history"][:2] == short["history"]
    assert longer["best"] == whole["best"]
    assert longer["metrics"] == whole["metrics"]
    assert "began with run.epochs = 2" in " ".join(longer["notes"])


def test_the_same_or_fewer_epochs_answer_with_the_result(
    results: dict[str, Any], version: DatasetVersion
) -> None:
    root, longer = Path(version.storage.location).parent, results["longer"]
    runs = Path(longer["run_dir"]).parent
    again = train_dataset("set", config("run.epochs=4"), root=root, runs=runs)
    assert again == {**longer, "unchanged": True}
    fewer = train_dataset("set", config("run.epochs=3"), root=root, runs=runs)
    assert fewer["notes"][-1] == "it has 4 epochs and keeps them; run.epochs = 3 asks for fewer"
    assert {**fewer, "notes": longer["notes"], "unchanged": False} == longer


def test_a_run_that_stopped_early_is_not_continued() -> None:
    stopped = {"epochs": 3, "stopped_early": "no better", "notes": []}
    assert finished_answer(stopped, 9) == {**stopped, "unchanged": True}
    assert finished_answer({"epochs": 3, "stopped_early": None}, 9) is None


def test_epochs_name_a_run_only_where_its_rates_depend_on_them(version: DatasetVersion) -> None:
    for schedule in (["optimizer.schedule=step", "optimizer.step_epochs=[3]"], []):
        names = {run_name(config(*schedule, f"run.epochs={epochs}"), version) for epochs in (2, 4)}
        assert len(names) == 1
    for falling in ("cosine", "one-cycle"):
        schedule = [f"optimizer.schedule={falling}"]
        names = {run_name(config(*schedule, f"run.epochs={epochs}"), version) for epochs in (2, 4)}
        assert len(names) == 2


def test_a_longer_cosine_says_which_run_it_does_not_continue(version: DatasetVersion, tmp_path: Path) -> None:
    short, longer = (config("optimizer.schedule=cosine", f"run.epochs={epochs}") for epochs in (2, 4))
    (tmp_path / "short").mkdir()
    record = run_record(run_identity(short, version), short, settled_by(short))
    (tmp_path / "short" / "run.json").write_bytes(record)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    reason = why_not_continued(run_identity(longer, version), tmp_path)
    assert reason is not None
    assert "short differs only in run.epochs (2)" in reason
    other = config("optimizer.schedule=cosine", "run.epochs=4", "data.seed=1")
    assert why_not_continued(run_identity(other, version), tmp_path) is None


def test_another_version_of_a_plugin_is_told(version: DatasetVersion, tmp_path: Path) -> None:
    settings = config("optimizer.schedule=step", "optimizer.step_epochs=[3]")
    one, two = ({**run_identity(settings, version), "plugins": {"mine": number}} for number in ("1.0", "2.0"))
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "run.json").write_bytes(run_record(one, settings, settled_by(settings)))
    reason = why_not_continued(two, tmp_path)
    assert reason == "this begins a new run: first was trained with mine 1.0, and mine 2.0 is installed"
    assert why_not_continued(one, tmp_path) is None


def test_the_warm_up_stays_that_of_the_length_with_which_a_run_began(
    version: DatasetVersion, tmp_path: Path
) -> None:
    began = load_settings(
        TrainConfig, section="train", overrides=[*BASE[:4], "optimizer.warmup_fraction=0.5", "run.epochs=2"]
    )
    (tmp_path / "run.json").write_bytes(run_record(run_identity(began, version), began, settled_by(began)))
    settled = read_settled(tmp_path)
    assert settled == Settled(epochs=2)
    longer = began.model_copy(update={"run": began.run.model_copy(update={"epochs": 6})})
    assert settled.applied(longer, steps_per_epoch=3).optimizer.warmup_steps == 3
    assert settled.applied(began, steps_per_epoch=3) == began
    assert read_settled(tmp_path / "nowhere") is None


@pytest.mark.parametrize(("epoch", "step"), [(2, 1), (3, 0)])
def test_a_run_cannot_end_before_where_it_is(epoch: int, step: int) -> None:
    check_not_past(2, 0, 2)
    with pytest.raises(ConfigError, match=f"epoch {epoch + 1} of the run has begun"):
        check_not_past(epoch, step, 2)
