"""A source that cannot be listed any more is a problem until it can."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from shardmill.flows.problems import open_problems
from shardmill.flows.server.alarm.problems import Sources
from shardmill.infra.errors import EnvironmentFault
from tests.samples.waiting import eventually


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))


def looking() -> bool:
    """Whether a look at a source is at work."""
    return any(thread.name.startswith("look at") for thread in threading.enumerate())


class Looked:
    """Looks at sources, with a clock that the test moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sources = Sources(clock=lambda: self.now)

    def problems(self, *sources: str) -> list[str]:
        """The problems after one more look at each source."""
        self.now += 1000.0
        wanted = dict.fromkeys(sources, True)
        self.sources.look(wanted)
        assert eventually(lambda: not looking(), 10)
        self.sources.look(wanted)
        return [problem.text for problem in open_problems()]


def test_a_folder_that_vanishes_comes_back_or_loses_all_its_files_is_told(tmp_path: Path) -> None:
    looked, folder = Looked(), tmp_path / "photos"
    (folder / "cats").mkdir(parents=True)
    pattern = f"{tmp_path}/*.zip"
    assert looked.problems(str(folder), pattern) == []
    folder.rename(tmp_path / "aside")
    assert looked.problems(str(folder)) == [f"{folder}: it cannot be listed: No such file or directory"]
    (tmp_path / "aside").rename(folder)
    assert looked.problems(str(folder)) == []
    shutil.rmtree(folder / "cats")  # as a folder looks on which nothing is mounted any more
    lost = [f"{folder}: it is empty, and had files before: is it mounted?"]
    assert looked.problems(str(folder)) == lost
    assert Looked().problems(str(folder)) == lost, "also after a restart"
    assert looked.problems() == [], "it is scheduled no more"


def test_a_folder_below_an_inbox_that_is_closed_is_told(tmp_path: Path) -> None:
    class Closed(Exception):
        strerror = "Permission denied"

    looked, asked = Looked(), dict[str, bool]()

    def listed(source: str, *, fully: bool) -> bool:
        asked[source] = fully
        if fully:
            raise Closed
        return True

    looked.sources.probe = listed
    looked.sources.look({"/scheduled": False, "/inbox": True})
    assert eventually(lambda: len(asked) == 2 and not looking(), 10)
    looked.now = 1.0
    looked.sources.look({"/scheduled": False, "/inbox": True})
    assert [problem.subject for problem in open_problems()] == ["/inbox"]


def test_an_inbox_that_never_had_files_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    assert Looked().problems(str(tmp_path / "inbox")) == []


def test_a_file_is_a_source(tmp_path: Path) -> None:
    looked, file = Looked(), tmp_path / "photos.zip"
    file.touch()
    assert looked.problems(str(file)) == []
    file.unlink()
    assert looked.problems(str(file)) != []


def test_credentials_that_expired_are_told_without_secrets() -> None:
    looked = Looked()

    def refuse(_: str, **__: bool) -> bool:
        raise EnvironmentFault("s3://bucket/photos: access denied", "renew the credentials")

    looked.sources.probe = refuse
    (text,) = looked.problems("s3://key:secret@bucket/photos?region=x")
    assert text == "s3://bucket/photos: it cannot be listed: s3://bucket/photos: access denied"


def test_a_listing_that_hangs_is_told_and_holds_up_no_other_source() -> None:
    looked, hangs = Looked(), threading.Event()

    def listed(source: str, **_: bool) -> bool:
        return source == "/good" or hangs.wait(60)

    looked.sources.probe = listed
    looked.sources.look({"/hangs": False, "/good": False})
    looked.now = 31.0
    looked.sources.look({"/hangs": False, "/good": False})
    (problem,) = open_problems()
    assert problem.text == "/hangs: listing it has not ended after 30 s"
    hangs.set()
    assert looked.problems("/hangs", "/good") == []
