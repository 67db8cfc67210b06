"""Other systems are told about a run, and one that fails costs a warning, not the run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra import progress
from shardmill.training.aliases.record import AliasRecord
from shardmill.training.config import TrainConfig
from shardmill.training.results.tracking.aliases import tell_trackers
from shardmill.training.results.tracking.tracked import TrackedRun
from shardmill.training.results.tracking.trackers import Trackers

MANIFEST = "0123456789abcdef" * 4
ROW = {"epoch": 1, "step": 5, "train": {"loss": 0.5}, "validation": {"loss": 0.6, "accuracy": 0.75}}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No system is switched on, and nothing is written to the working folder."""
    for name in ("MLFLOW_TRACKING_URI", "WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The warnings of the run."""
    found: list[str] = []

    def listen(event: Mapping[str, Any]) -> None:
        if event.get("level") == "warning":
            found.append(str(event["message"]))

    end = progress.subscribe(listen)
    yield found
    end()


def run_in(folder: Path, **tracking: Any) -> TrackedRun:
    folder.mkdir(exist_ok=True)
    config = TrainConfig.model_validate({"tracking": tracking})
    dataset = {"name": "photos", "version": 3, "source": "/photos", "manifest_sha256": MANIFEST}
    environment = {"dataset": dataset, "config": config.model_dump(mode="json")}
    return TrackedRun(folder, environment, config.tracking, "accuracy")


def result_of(run: TrackedRun, accuracy: float) -> dict[str, Any]:
    export = run.run_dir / "export"
    export.mkdir(exist_ok=True)
    (export / "saved_model.pb").write_bytes(b"model")
    metrics = {"test": {"accuracy": 0.7, "num_examples": 9}, "validation": {"accuracy": accuracy}}
    places = {name: str(run.run_dir / name) for name in ("report", "tensorboard_dir")}
    return {"metrics": metrics, "epochs": 2, "run_dir": str(run.run_dir), "export_dir": str(export), **places}


def finish(run: TrackedRun, accuracy: float = 0.8) -> None:
    with Trackers(run) as trackers:
        trackers.epoch(ROW)
        trackers.end(result_of(run, accuracy))


def test_without_their_variables_nobody_is_told(tmp_path: Path, warnings: list[str]) -> None:
    finish(run_in(tmp_path / "run"))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["export"]
    assert warnings == []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a store of MLflow in a file, which takes seconds to make."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def client(store: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the store, which the variable names."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    return mlflow.MlflowClient(store)


@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_mlflow_has_parameters_metrics_dataset_and_places(
    client: Any, tmp_path: Path, warnings: list[str]
) -> None:
    run = run_in(tmp_path / "run", experiment="trial")
    with Trackers(run) as trackers:
        trackers.epoch(ROW)
    number = json.loads((tmp_path / "run" / "tracking.json").read_text())["mlflow"]["run_id"]
    assert client.get_run(number).info.status == "KILLED", "it was interrupted"
    finish(run)
    assert warnings == []
    experiment = client.get_experiment_by_name("trial").experiment_id
    (found,) = client.search_runs([experiment])
    assert found.info.run_id == number, "a resumed run goes on in the same one"
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.data.params["dataset"] == "photos@3"
    assert found.data.params["model.name"] == "small_cnn"
    assert found.data.metrics["validation_accuracy"] == 0.75
    assert found.data.metrics["best_test_accuracy"] == 0.7
    assert {metric.step for metric in client.get_metric_history(number, "train_loss")} == {1}
    assert found.data.tags["shardmill.export_dir"] == str(tmp_path / "run" / "export")
    assert found.data.tags["shardmill.manifest_sha256"] == MANIFEST
    (dataset,) = found.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("photos@3", MANIFEST[:36])


@pytest.mark.filterwarnings("ignore")
def test_only_a_better_version_of_the_registered_model_takes_over_the_alias(
    client: Any, tmp_path: Path, warnings: list[str]
) -> None:
    holders = []
    for name, accuracy in (("first", 0.8), ("worse", 0.7), ("better", 0.9)):
        finish(run_in(tmp_path / name, registered_model="photos", alias="best"), accuracy)
        holders.append(int(client.get_model_version_by_alias("photos", "best").version))
    assert warnings == []
    assert holders == [1, 1, 3]
    version = client.get_model_version("photos", "3")
    assert version.tags == {"dataset": "photos@3", "metric": "accuracy", "value": "0.9"}
    uploaded = Path(version.source.removeprefix("file://")) / "saved_model.pb"
    assert uploaded.read_bytes() == b"model"


@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_an_alias_that_moves_is_given_to_the_registered_version_of_the_run(
    client: Any, tmp_path: Path, warnings: list[str]
) -> None:
    runs = [run_in(tmp_path / name, registered_model="moved") for name in ("first", "second")]
    for run in runs:
        finish(run)
    for run, version in ((runs[0], "1"), (runs[1], "2"), (runs[0], "1")):
        tell_trackers(run.run_dir, moved_to(run.name))
        assert str(client.get_model_version_by_alias("moved", "production").version) == version
    finish(run_in(tmp_path / "unregistered"))
    tell_trackers(tmp_path / "unregistered", moved_to("unregistered"))
    assert str(client.get_model_version_by_alias("moved", "production").version) == "1"
    assert warnings == []


def moved_to(run: str) -> AliasRecord:
    return AliasRecord(
        dataset="photos",
        alias="production",
        action="promoted",
        run=run,
        at="2026-01-02T03:04:05+00:00",
        by="ann@box",
        trained_on="photos@3",
        verdict="better",
    )


def test_an_mlflow_that_fails_does_not_undo_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    pytest.importorskip("mlflow")
    run = run_in(tmp_path / "run")
    run.remember("mlflow", {"uri": "http://127.0.0.1:9", "run_id": "1"})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    tell_trackers(run.run_dir, moved_to("run"))
    (warning,) = warnings
    assert warning.startswith("MLflow was not told of the alias production")


@pytest.mark.filterwarnings("ignore")
def test_a_server_that_fails_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    finish(run_in(tmp_path / "run"))
    (said,) = warnings
    assert said.startswith("MLflow failed, and the run goes on without it: ")


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_writes_a_run_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = run_in(tmp_path / "run")
    finish(run)
    assert warnings == []
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    number = json.loads((tmp_path / "run" / "tracking.json").read_text())["wandb"]["run_id"]
    assert number in file.name
    # The client's own process writes the file, at times a moment after the run has finished.
    for _ in range(600):
        content = file.read_bytes()
        if b"best_test_accuracy" in content:
            break
        time.sleep(0.1)
    assert b"validation_accuracy" in content
    assert MANIFEST.encode() in content
