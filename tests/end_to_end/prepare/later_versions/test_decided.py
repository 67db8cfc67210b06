"""Decisions of reviews in the next versions: labels, what is left out, undone, moved and changed content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.encode.decided import Decided
from shardmill.beam_jobs.schemas import Status
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.decisions import Decision, DecisionLog
from shardmill.infra.progress import Event, subscribe
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.prepared import prepared_here, rows, run, stored_bytes

PICTURES = {"cat": 6, "dog": 6}


def decide(root: Path, uri: str, decision: str, **more: Any) -> None:
    record = rows(Catalog(root).open("d"))[uri]
    log = DecisionLog(Catalog(root).dataset_storage("d"))
    key = f"k{len(log.read().rows)}"
    log.append([Decision(key, record["record_id"], decision, "ada", **more)])  # type: ignore[arg-type]


def test_decisions_follow_content_to_later_versions(tmp_path: Path) -> None:
    source, root = make_photos(tmp_path / "source", PICTURES), tmp_path / "root"
    settings = {"runner": {"processes": 2, "block_images": 8}}
    run(source, root, **settings)
    first = rows(Catalog(root).open("d"))
    cats = [uri for uri in first if uri.startswith("cat/")]
    decide(root, cats[0], "relabel", to="dog", was="cat")
    decide(root, cats[1], "exclude", reason="a sofa")
    decide(root, cats[2], "keep")
    decide(root, cats[3], "unsure")
    decide(root, cats[4], "relabel", to="emu")
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    assert run(source, root, **settings)["version"] == 2
    unsubscribe()
    told = [each["message"] for each in events if each.get("level") == "warning"]
    assert "the review gives a label that the source does not have: 'emu'" in told
    version = Catalog(root).open("d")
    second = rows(version)
    assert {uri for uri in second if second[uri]["label"] != first[uri]["label"]} == {cats[0], cats[4]}
    assert (second[cats[0]]["label"], second[cats[4]]["label"]) == ("dog", "emu")
    lost = second[cats[1]]
    assert (lost["outcome"], lost["reason"], lost["record_id"]) == ("filtered", "review", None)
    assert "a sofa" in lost["message"]
    assert "ada" in lost["message"]
    assert version.manifest.accounting.num_records == 11
    edits = version.manifest.label_edits
    assert edits is not None
    assert (edits.num_labels, edits.num_left_out) == (2, 1)
    assert version.manifest.classes == ["cat", "dog", "emu"]
    assert run(source, root, **settings)["unchanged"]

    # Another name, a copy in another class, and other content under the old name.
    (source / cats[1]).rename(source / "dog/moved.jpg")
    write(source, {cats[0]: jpeg(900), "cat/copy.jpg": (source / cats[0]).read_bytes()})
    assert run(source, root, **settings)["version"] == 3
    third = rows(Catalog(root).open("d"))
    assert (third["dog/moved.jpg"]["reason"], third[cats[0]]["label"]) == ("review", "cat")
    assert (third["cat/copy.jpg"]["label"], third["cat/copy.jpg"]["outcome"]) == ("dog", "record")


def test_an_undone_decision_gives_the_first_bytes_again(tmp_path: Path) -> None:
    source, root = make_photos(tmp_path / "source", PICTURES), tmp_path / "root"
    run(source, root)
    uri = next(iter(rows(Catalog(root).open("d"))))
    decide(root, uri, "exclude")
    assert run(source, root)["version"] == 2
    record = Decision("undone", rows(Catalog(root).open("d@1"))[uri]["record_id"], "undo", "bob")
    DecisionLog(Catalog(root).dataset_storage("d")).append([record])
    assert run(source, root)["version"] == 3
    version = Catalog(root).open("d")
    assert version.manifest.label_edits is None
    first, third = (rows(Catalog(root).open(ref)) for ref in ("d@1", "d@3"))
    assert [row["label"] for row in first.values()] == [row["label"] for row in third.values()]
    assert {row["outcome"] for row in third.values()} == {"record"}


def test_by_ranges_and_in_memory_decisions_give_the_same_bytes(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", PICTURES)
    roots = [tmp_path / "a", tmp_path / "b"]
    for ranges, root in zip((1, 3), roots, strict=True):
        settings = {"runner": {"processes": 1, "plan_ranges": ranges}}
        run(source, root, **settings)
        decide(root, "cat/00001.jpg", "exclude")
        decide(root, "dog/00001.jpg", "relabel", to="cat")
        run(source, root, **settings)
    assert stored_bytes(roots[0]) == stored_bytes(roots[1])


def test_decisions_obey_the_classes_that_a_run_keeps_and_a_dry_run_knows_them(tmp_path: Path) -> None:
    source, root = make_photos(tmp_path / "source", PICTURES), tmp_path / "root"
    kept = {"filter": {"classes": ["cat", "dog"]}}
    run(source, root, **kept)
    options = ["--dry-run", "--set", 'filter.classes=["cat","dog"]', "--set", "runner.block_images=8"]
    assert prepared_here(source, root, *options)["unchanged"]
    decide(root, "cat/00001.jpg", "relabel", to="emu")
    assert not prepared_here(source, root, *options)["unchanged"]
    run(source, root, **kept)
    found = rows(Catalog(root).open("d"))["cat/00001.jpg"]
    assert (found["outcome"], found["reason"]) == ("filtered", "class")


def test_a_class_that_no_image_of_the_source_has_is_told() -> None:
    def warned(to: str) -> list[str]:
        decision = Decision("k", "0" * 16, "relabel", "ada", to=to)
        return Decided.of({"0" * 16: decision}, PrepareConfig()).warnings(listing)

    status = pa.array([Status.TO_READ, Status.TO_READ, Status.FILTERED], pa.int8())
    listing = pa.table({"label": ["cat", "dog", "emu"], "status": status})
    assert warned("cat") == []
    assert warned("dgo") == [
        "the review gives a label that the source does not have: 'dgo'; did you mean 'dog'?"
    ]
    assert len(warned("emu")) == 1
    assert Decided.of({}, PrepareConfig()).warnings(listing) == []
