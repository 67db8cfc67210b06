"""The command around a run: what it answers without training."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from shardmill.infra.errors import ConfigError, DataError, LockedError, NotFoundError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.run.files.identity import run_name
from shardmill.training.run.files.summary import summary
from shardmill.training.train import main, train_dataset
from tests.samples.datasets.published import coloured, publish

TRAINABLE = {"train": {"a": 2, "b": 2}}


def test_a_dataset_without_train_examples_is_refused(tmp_path: Path) -> None:
    publish(tmp_path, coloured({"test": {"a": 3}}), name="set")
    with pytest.raises(
        DataError, match="the train split of set@1 is empty; it has: 3 examples in test"
    ) as caught:
        train_dataset("set", TrainConfig(), root=tmp_path, runs=tmp_path / "runs")
    assert "splits.train" in str(caught.value.remedy)


def test_an_unknown_dataset_suggests_the_near_one(tmp_path: Path) -> None:
    publish(tmp_path, coloured(TRAINABLE), name="colours")
    with pytest.raises(NotFoundError, match="did you mean 'colours'"):
        train_dataset("colors", TrainConfig(), root=tmp_path, runs=tmp_path / "runs")


def test_a_run_is_locked_while_it_is_trained(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured(TRAINABLE), name="set")
    lock = f".locks/{run_name(TrainConfig(), version)}"
    with (
        Storage.at(tmp_path / "runs").exclusive_lock(lock),
        pytest.raises(LockedError, match="the same training run"),
    ):
        train_dataset("set", TrainConfig(), root=tmp_path, runs=tmp_path / "runs")


def test_a_finished_run_answers_with_its_result(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured(TRAINABLE), name="set")
    folder = Storage.at(tmp_path / "runs").child(run_name(TrainConfig(), version))
    kept = {"history": [], "run_dir": "there", "unchanged": False}
    folder.write_atomic("result.json", json.dumps(kept).encode())
    result = train_dataset("set@1", TrainConfig(), root=tmp_path, runs=tmp_path / "runs")
    assert result == {**kept, "unchanged": True}


def test_a_refused_run_leaves_no_folder_and_a_begun_one_stays(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured(TRAINABLE), name="set")
    no_room = {"cache": "memory", "cache_bytes": 0, "cache_overflow": "refuse"}
    config = TrainConfig.model_validate({"reading": no_room})
    run_dir = tmp_path / "runs" / run_name(config, version)
    for checkpoints in (None, run_dir / "checkpoints"):
        if checkpoints is not None:
            checkpoints.mkdir(parents=True)
            (checkpoints / "step-000000005.npz").write_bytes(b"")
            (checkpoints / ".partial-0123").write_bytes(b"of a killed process")
        with pytest.raises(ConfigError, match="the cache"):
            train_dataset("set", config, root=tmp_path, runs=tmp_path / "runs")
        assert run_dir.exists() == (checkpoints is not None)
    assert [path.name for path in (run_dir / "checkpoints").iterdir()] == ["step-000000005.npz"]


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_missing_framework_is_said_before_a_run_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path / "sets", coloured(TRAINABLE), name="set")
    for ranks in ((), ("--workers", "2")):
        where = ("--root", str(tmp_path / "sets"), "--runs", str(tmp_path / "runs"))
        assert main(["set", *where, "--framework", "torch", *ranks]) == 4
        assert "PyTorch is not installed" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".locks"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["set", "--sett", "run.epochs=2"], "--sett"),
        (["set", "--config-json", "{"], "--config-json is not JSON"),
        (["set", "--set", "run.epoch=2"], "did you mean 'run.epochs'"),
    ],
)
def test_wrong_commands_end_with_status_2(
    argv: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path, coloured(TRAINABLE), name="set")
    assert main([*argv, "--root", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "epochs", "devices"), [(1, "1 epoch", "1 device"), (2, "2 epochs", "2 devices")]
)
def test_the_summary_counts_in_words(count: int, epochs: str, devices: str) -> None:
    result = {
        "model": "m", "dataset": "d", "version": 1, "epochs": count, "num_replicas": count,
        "unchanged": False, "metrics": {}, "notes": [], "images_per_second": 9.0, "input_wait_fraction": 0.1,
        "export_dir": "/e", "tensorboard_dir": "/t",
    }  # fmt: skip
    first, rate, *_ = summary(result).splitlines()
    assert first == f"trained m on d@1 for {epochs}"
    assert rate == f"  9 images/s on {devices}, waiting for data 10% of the time"


def test_the_summary_has_the_figure_that_chose_the_model() -> None:
    figures = {"r2": 0.5, "absolute_error": 2.0, "root_mean_square_error": 3.0, "loss": 0.25}
    result = {
        "model": "m", "dataset": "d", "version": 1, "epochs": 1, "num_replicas": 1, "unchanged": False,
        "metrics": {"test": figures}, "notes": [], "images_per_second": 9.0, "input_wait_fraction": 0.1,
        "export_dir": "/e", "tensorboard_dir": "/t",
    }  # fmt: skip
    assert "test       R² 0.5000, loss 0.2500" in summary(result), "a result of an earlier release"
    chosen = summary(result | {"best_metric": "absolute_error"})
    assert "test       R² 0.5000, absolute error 2.0000, loss 0.2500" in chosen
    assert "test       R² 0.5000, loss 0.2500" in summary(result | {"best_metric": "loss"})
