"""From any record to its source and back, for every source that was ever given."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.locate import locate_anywhere
from shardmill.infra.errors import NotFoundError
from tests.samples.images.photos import make_photos
from tests.samples.preparing.runs import run

GONE = "a/00001.jpg"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 has all files, version 2 one less, version 3 is of another folder."""
    place = tmp_path_factory.mktemp("locate")
    source = make_photos(place / "source", {"a": 5, "b": 5})
    other = shutil.copytree(source / "b", place / "other" / "b")
    run(source, place / "root")
    (source / GONE).unlink()
    run(source, place / "root")
    run(other.parent, place / "root")
    return place


@pytest.mark.parametrize(
    ("source", "version", "versions"),
    [
        (GONE, 1, [1]),
        ("a/00002.jpg", 2, [1, 2]),
        ("b/00002.jpg", 3, [1, 2, 3]),
        ("{place}/source/a/00001.jpg", 1, [1]),
        ("{place}/source/b/00001.jpg", 2, [1, 2]),
        ("{place}/other/b/00001.jpg", 3, [3]),
    ],
)
def test_a_source_leads_to_the_newest_version_that_has_it(
    source: str, version: int, versions: list[int], place: Path
) -> None:
    catalog = Catalog(place / "root")
    found = locate_anywhere(catalog, "d", source=source.format(place=place))
    assert (found.version.version, found.versions, found.newest) == (version, versions, 3)
    (match,) = found.matches
    assert match["shard"] is not None
    assert match["location"].endswith(match["uri"])
    back = locate_anywhere(catalog, "d", record=match["record_id"])
    assert match["uri"] in [entry["uri"] for entry in back.matches]


def test_a_version_that_is_named_is_asked_alone(place: Path) -> None:
    catalog = Catalog(place / "root")
    assert locate_anywhere(catalog, "d@1", source=GONE).version.version == 1
    with pytest.raises(NotFoundError, match="never saw the source") as caught:
        locate_anywhere(catalog, "d@2", source=GONE)
    assert caught.value.remedy == "known in: d@1"
    with pytest.raises(NotFoundError, match=r"d@3 never saw the source 'a/nothing\.jpg'"):
        locate_anywhere(catalog, "d", source="a/nothing.jpg")
    with pytest.raises(NotFoundError, match="no record 'feed'"):
        locate_anywhere(catalog, "d", record="feed")


def test_the_command_says_that_it_left(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["locate", "d", "--source", GONE, "--root", str(place / "root")]
    assert cli.run(argv) == 0
    told = capsys.readouterr()
    assert "d@3 has it no more; d@1 was the last that had it" in told.err
    assert "in versions" in told.out
    assert cli.run([*argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["version"], found["versions"]) == (1, [1])
