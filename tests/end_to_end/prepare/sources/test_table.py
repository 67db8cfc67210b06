"""Photographs that a table names, through the whole of prepare, and again after the table has changed."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.reasons import REASONS
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import prepared_here, rows, run
from tests.samples.sources.columns import with_columns

TABLE = {
    "file": "images.csv",
    "image": "image",
    "prefix": "images",
    "group": "sender",
    "split": "split",
    "drop_labels": ["Not sure", "Skip"],
    "merge_labels": {"T-Shirt": "top", "Polo": "top"},
}
CONFIG: dict[str, Any] = {
    "source": {"kind": "table", **with_columns("table", TABLE)},
    "image": {"size": 16},
    "failure_budget": 0.3,
}
LABELS = ("T-Shirt", "Polo", "Hat", "Hat", "Not sure", "Skip")

Line = tuple[str, str, str, str]


def write_table(source: Path, lines: Sequence[Line]) -> None:
    with (source / "images.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("image", "sender", "label", "split"), *lines])


@dataclass
class Prepared:
    source: Path
    root: Path
    lines: list[Line]
    first: dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A table of bare ids with everything that is wrong with tables, as version 1."""
    place = tmp_path_factory.mktemp("table")
    source, root = place / "photos", place / "root"
    write(source, {f"images/id{number:02}.jpg": jpeg(number + 1) for number in range(48)})
    write(source, {"images/nobody.jpg": jpeg(99), "images/copy.jpg": jpeg(1)})
    lines: list[Line] = [
        (f"id{number:02}", f"sender{number % 12}", LABELS[number % 6], "val" if number % 12 == 3 else "")
        for number in range(48)
    ]
    lines[7] = ("id07", "sender7", "", "")
    lines += [
        lines[8],
        ("id09", "sender9", "Polo", "val"),
        ("gone", "s", "Hat", ""),
        ("../id01", "s", "Hat", ""),
    ]
    lines += [("copy", "sender0", "Hat", "")]
    write_table(source, lines)
    return Prepared(source, root, lines, run(source, root, **CONFIG))


def test_the_report_explains_every_row(made: Prepared) -> None:
    version = Catalog(str(made.root)).open("d")
    found = rows(version)
    assert len(found) == 50 + 1 + 4, "50 files, the table, and the rows that stand for no file"
    # Labels go round by six: 48 - 16 dropped - 1 without label - 1 contradicted; the copy repeats id00.
    assert Counter(row["reason"] or row["outcome"] for row in found.values()) == {
        "record": 30,
        "same_bytes": 1,
        "dropped_label": 16,
        "no_label": 1,
        "contradicting_rows": 2,
        "repeated_row": 1,
        "missing_file": 1,
        "bad_path": 1,
        "not_in_table": 1,
        "table": 1,
    }
    assert version.manifest.classes == ["Hat", "top"]
    assert len(version.manifest.label_conflicts) == 1, "the copy has another label"
    page = Path(made.first["report"]).read_text(encoding="utf-8")
    for row in found.values():
        if row["reason"] in REASONS:
            meaning, _ = REASONS[row["reason"]]
            assert meaning in page
    assert "images.csv#row=51" in page
    assert not verify(version).problems


def test_given_splits_and_groups_are_kept(made: Prepared) -> None:
    records = [
        row for row in rows(Catalog(str(made.root)).open("d@1")).values() if row["outcome"] == "record"
    ]
    senders: dict[str, set[str]] = {}
    for row in records:
        senders.setdefault(row["group"], set()).add(row["split"])
    assert all(len(splits) == 1 for splits in senders.values())
    assert senders["sender3"] == {"validation"}


def test_an_unchanged_table_makes_no_version_and_a_changed_label_changes_its_record(made: Prepared) -> None:
    again = run(made.source, made.root, **CONFIG)
    assert again["unchanged"]
    lines = [(*line[:2], "Cap", line[3]) if line[0] == "id02" else line for line in made.lines]
    write_table(made.source, lines)
    changed = run(made.source, made.root, **CONFIG)
    assert not changed["unchanged"]
    assert (changed["version"], changed["num_encoded"]) == (2, 0)
    catalog = Catalog(str(made.root))
    before, after = (rows(catalog.open(f"d@{number}")) for number in (1, 2))
    assert after["images/id02.jpg"]["label"] == "Cap"
    changed_rows = {uri for uri in after if after[uri] != before[uri]} - {"images.csv"}
    assert changed_rows == {"images/id02.jpg"}
    assert catalog.open("d@2").manifest.classes == ["Hat", "top", "Cap"]
    assert not verify(catalog.open("d@2")).problems
    record = after["images/id02.jpg"]["record_id"]
    indexes = [
        catalog.open("d@2").checked_table(shard.index_path, shard.index_sha256)
        for shard in catalog.open("d@2").manifest.shards
    ]
    labels = {row["id"]: row["label"] for index in indexes for row in index.to_pylist()}
    assert labels[record] == 2


def test_a_dry_run_shows_the_first_rows_as_understood(made: Prepared, tmp_path: Path) -> None:
    write_table(made.source, made.lines)
    (tmp_path / "c.toml").write_text(
        '[prepare.source]\nkind = "table"\n[prepare.source.table]\nfile = "images.csv"\n'
        'prefix = "images"\n[prepare.source.columns]\nimage = "image"\ndrop_labels = ["Not sure"]\n'
    )
    foreseen = prepared_here(made.source, tmp_path / "new", "--dry-run", "--config", str(tmp_path / "c.toml"))
    assert foreseen["first_inputs"][0] == {
        "uri": "images/copy.jpg", "label": "Hat", "split": None, "group": None,
    }  # fmt: skip
    assert foreseen["left_out"] == {
        "bad_path": 1, "contradicting_rows": 2, "dropped_label": 8, "missing_file": 1, "no_label": 1,
        "not_in_table": 1, "repeated_row": 1, "table": 1,
    }  # fmt: skip
    assert not (tmp_path / "new").exists()
