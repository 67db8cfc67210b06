"""SHARDMILL_HOME: a folder that cannot be used is named, and loopback needs no proxy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardmill.flows import home
from shardmill.flows.server.running_up import up_lock
from shardmill.infra.errors import EnvironmentFault


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


def test_only_its_user_can_read_the_home_also_one_of_an_earlier_release(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    (folder / "prefect").mkdir(parents=True, mode=0o755)
    (folder / "mine").mkdir(mode=0o755)
    for file in ("prefect/prefect.db", "up.lock", "mine/notes"):
        (folder / file).touch(0o644)
    (folder / "logs").symlink_to(tmp_path)
    home.make_private()
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*") if not path.is_symlink()}
    assert modes == {"prefect": 0o700, "prefect.db": 0o600, "up.lock": 0o600, "mine": 0o755, "notes": 0o644}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o700, "as pytest made it: a link is not followed"
    made = [home.home(), home.records_folder(), Path(home.prefect_environment()["PREFECT_HOME"])]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}
