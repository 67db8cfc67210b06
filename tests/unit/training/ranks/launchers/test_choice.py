"""Launchers are chosen by name, and refuse unsuitable settings before anything starts."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from shardmill import open_dataset
from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.infra.settings import validate
from shardmill.training.config import TrainConfig, with_devices
from shardmill.training.ranks import launchers
from shardmill.training.ranks.devices import RankCount
from shardmill.training.run.files.summary import outer_job
from tests.samples.datasets.published import coloured, publish


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ranks": {"launcher": "rya", "workers": "2"}}, "'local'"),
        ({"ranks": {"launcher": "ray"}}, "ranks.launcher = 'ray' needs ranks.workers"),
        (
            {"ranks": {"launcher": "ray", "workers": "2"}, "data": {"global_batch_size": "auto"}},
            "would be tried on this machine",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(TrainConfig, settings, where="the test")


def test_the_option_is_the_setting() -> None:
    config = with_devices(TrainConfig(), None, "2..4", "ray")
    assert (config.ranks.launcher, config.ranks.workers) == ("ray", "2..4")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(EnvironmentFault) as caught:
        launchers.open_hosts("ray", RankCount(2, 2), "all")
    assert "needs ray, which is not installed" in caught.value.message
    assert "shardmill[ray]" in (caught.value.remedy or "")


def test_the_ranks_of_an_outer_system_train_what_was_asked_for(tmp_path: Path) -> None:
    publish(tmp_path, coloured({"train": {"a": 4, "b": 4}}), name="colours")
    version = open_dataset("colours", root=tmp_path).version
    config = validate(TrainConfig, {"ranks": {"workers": "4"}, "run": {"epochs": 3}}, where="the test")
    job = outer_job(config, version, "colours-v1-abc", tmp_path, "/shared/runs")
    assert job.count == RankCount(4, 4)
    command = job.command(root="/data")
    assert command[:5] == ("python", "-P", "-m", "shardmill.training.train", "colours@1")
    assert command[5:9] == ("--root", "/data", "--runs", "/shared/runs")
    told = TrainConfig.model_validate(json.loads(command[command.index("--config-json") + 1]))
    assert told.ranks.workers is None, "the rank would start ranks of its own"
    assert told.run == config.run


def test_a_job_that_would_begin_anew_at_each_start_is_refused(tmp_path: Path) -> None:
    publish(tmp_path, coloured({"train": {"a": 4, "b": 4}}), name="colours")
    version = open_dataset("colours", root=tmp_path).version
    config = validate(TrainConfig, {"run": {"fresh": True}}, where="the test")
    with pytest.raises(ConfigError, match=r"run\.fresh"):
        outer_job(config, version, "colours-v1-abc", tmp_path, "/shared/runs")
