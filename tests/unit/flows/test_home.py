"""SHARDMILL_HOME: a folder that cannot be used is named, and loopback needs no proxy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows import home
from flows.server.running_up import up_lock
from infra.errors import EnvironmentFault


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))


def test_a_home_that_cannot_be_used_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("SHARDMILL_HOME", str(place))
        with pytest.raises(EnvironmentFault, match="file") as raised:
            home.logs_folder()
        assert raised.value.remedy == "set SHARDMILL_HOME to a folder that you can write to"


def test_a_home_without_permission_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(EnvironmentFault, match="cannot be written to"):
        home.home()


@pytest.mark.parametrize("below", ["logs", "prefect", "up.lock"])
def test_what_stands_in_the_way_in_the_home_is_named(below: str) -> None:
    blocked = home.home() / below
    if below == "up.lock":
        blocked.mkdir()
    else:
        blocked.touch()
    with pytest.raises(EnvironmentFault, match=below):
        use_everything()


def use_everything() -> None:
    home.logs_folder()
    home.prefect_environment()
    with up_lock():
        pass


def test_loopback_goes_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert home.quiet_environment()["NO_PROXY"] == "example.org,127.0.0.1,localhost"
