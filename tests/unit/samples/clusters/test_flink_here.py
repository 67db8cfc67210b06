"""The requirements and files of the Flink cluster's script, without Java; tests/cluster/ runs it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.infra.errors import EnvironmentFault, UsageError
from tests.samples.clusters.flink_here import jars
from tests.samples.clusters.flink_here.__main__ import build_parser, layout_of
from tests.samples.clusters.flink_here.cluster import prepare_settings
from tests.samples.clusters.flink_here.configuration import Layout, flink_configuration, write_configuration

FREE = ["--rest-port", "0", "--job-port", "0", "--worker-port", "0"]


def layout(folder: Path, *arguments: str) -> Layout:
    return layout_of(build_parser().parse_args(["up", "--folder", str(folder), *FREE, *arguments]))


def fake_java(folder: Path, version: str) -> None:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_a_missing_or_old_java_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="apt-get install openjdk-17-jre-headless"):
        jars.find_java()
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    fake_java(tmp_path, "11.0.2")
    with pytest.raises(EnvironmentFault, match="Java 17 or later"):
        jars.find_java()
    fake_java(tmp_path, "21.0.1")
    assert jars.find_java() == str(tmp_path / "java")


def test_a_missing_maven_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"jars/flink-{jars.FLINK_VERSION}").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="apt-get install maven"):
        jars.get_jars(tmp_path / "jars", lambda _: None)
    assert not (tmp_path / "jars/jobserver").exists()


def test_the_configuration_has_a_restart_strategy_and_loopback_addresses(tmp_path: Path) -> None:
    wanted = layout(tmp_path, "--task-managers", "3", "--slots", "2")
    write_configuration(wanted)
    text = (wanted.conf_folder / "config.yaml").read_text()
    assert text == flink_configuration(wanted)
    settings = yaml.safe_load(text)
    assert settings["restart-strategy.type"] == "fixed-delay"
    assert settings["parallelism.default"] == 6
    assert {settings[key] for key in ("rest.address", "jobmanager.bind-host")} == {"127.0.0.1"}
    hosts = [(wanted.conf_folder / f"hosts-{number}").read_text().splitlines()[0] for number in (1, 2, 3)]
    assert hosts == ["127.0.0.2 localhost", "127.0.0.3 localhost", "127.0.0.4 localhost"]


def test_the_settings_that_it_writes_are_settings_of_prepare(tmp_path: Path) -> None:
    wanted = layout(tmp_path)
    given = tomllib.loads(prepare_settings(wanted))["prepare"]
    runner = PrepareConfig.model_validate(given).runner
    assert runner.name == "flink"
    assert runner.flink.master == wanted.flink_master
    assert runner.flink.job_endpoint == wanted.job_endpoint


@pytest.mark.parametrize("wrong", [("--task-managers", "0"), ("--slots", "0")])
def test_senseless_numbers_are_refused(wrong: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=wrong[0]):
        layout(tmp_path, *wrong)
