"""Nothing, or next to nothing, is done where a source is what it was."""

from __future__ import annotations

import os
from pathlib import Path

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.prepared import prepared_here, run, stored_bytes


def test_nothing_happens_where_nothing_has_changed(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 8, "b": 8})
    first = prepared_here(source, tmp_path / "root")
    again = prepared_here(source, tmp_path / "root", "--set", "runner.processes=1")
    assert (again["version"], again["unchanged"]) == (1, True)
    assert again["splits"] == first["splits"]
    assert "encode" not in again["stage_seconds"]

    write(source, {"a/new.jpg": jpeg(700)})
    changed = run(source, tmp_path / "root")
    assert (changed["version"], changed["num_records"], changed["unchanged"]) == (2, 17, False)
    assert Catalog(tmp_path / "root").open("d").manifest.parent == 1
    assert verify(Catalog(tmp_path / "root").open("d@1")).problems == []


def test_a_source_that_is_what_it_was_before_shares_its_shards(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 8, "b": 8})
    run(source, tmp_path / "root")
    first = stored_bytes(tmp_path / "root")
    extra = write(source, {"a/new.jpg": jpeg(700)}) / "a/new.jpg"
    run(source, tmp_path / "root")
    extra.unlink()
    back = run(source, tmp_path / "root")
    assert (back["version"], back["unchanged"], back["inherited_shards"]) == (3, False, 3)
    one, three = (Catalog(tmp_path / "root").open(f"d@{version}").manifest for version in (1, 3))
    assert one.shards == three.shards
    assert first.items() <= stored_bytes(tmp_path / "root").items()


def test_a_version_whose_files_were_deleted_is_made_again(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 8})
    run(source, tmp_path / "root")
    next((tmp_path / "root").rglob("train-*.tfrecord*")).unlink()
    again = run(source, tmp_path / "root")
    assert (again["version"], again["unchanged"]) == (2, False)
    assert verify(Catalog(tmp_path / "root").open("d@1")).problems == []


def test_the_source_must_not_change_between_versions_unseen(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 6})
    run(source, tmp_path / "root")
    os.utime(source / "a/00001.jpg", ns=(1, 1))
    assert run(source, tmp_path / "root")["version"] == 2
