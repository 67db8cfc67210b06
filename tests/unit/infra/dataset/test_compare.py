"""Differences between two versions, from tables of inputs written by the contract alone."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.compare import diff, unequal
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import (
    INPUTS_SCHEMA,
    Accounting,
    Manifest,
    Shard,
    TableFile,
    summarise_splits,
)

NUMBERS = st.none() | st.integers(0, 2)
FLOATS = st.none() | st.sampled_from([0.0, 1.5, math.nan])
TEXTS = st.none() | st.sampled_from(["", "a", "b"])


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (NUMBERS, pa.int64()),
        (FLOATS, pa.float32()),
        (TEXTS, pa.string()),
        (st.none() | st.lists(NUMBERS, max_size=3), pa.list_(pa.int64())),
        (st.none() | st.lists(FLOATS, max_size=3), pa.list_(pa.float32())),
        (st.none() | st.lists(TEXTS, max_size=3), pa.list_(pa.string())),
    ],
)
def test_rows_differ_where_their_values_differ(values: st.SearchStrategy[Any], kind: pa.DataType) -> None:
    @given(st.lists(st.tuples(values, values), max_size=8))
    def check(pairs: list[tuple[Any, Any]]) -> None:
        was, now = (pa.array([pair[side] for pair in pairs], kind) for side in (0, 1))
        assert unequal(was, now).tolist() == [not same(*pair) for pair in pairs]

    check()


Row = tuple[str, str, str, str, str]  # uri, content, label, split, outcome

CAT: Row = ("a/cat.jpg", "cat", "a", "train", "record")
DOG: Row = ("b/dog.jpg", "dog", "b", "train", "record")
DOG_AGAIN: Row = ("c/dog.jpg", "dog", "b", "train", "duplicate")
OWL: Row = ("c/owl.jpg", "owl", "a", "test", "record")


def publish(
    root: Path, version: int, parts: dict[str, list[Row]], config: dict[str, Any] | None = None
) -> DatasetVersion:
    """A version with these parts of inputs, and of shards no more than their names and counts."""
    folder = root / "d" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for part in parts.values() for row in part]
    files = []
    for name, part in parts.items():
        table = pa.Table.from_pylist([_input(*row) for row in part], INPUTS_SCHEMA)
        pq.write_table(table, folder / name)
        files.append(TableFile(path=f"data/{name}", num_rows=len(part), num_bytes=0, sha256=""))
    outcomes = Counter(row[4] for row in rows)
    shards = [_shard(version, split, rows) for split in ("train", "test")]
    kept = [shard for shard in shards if shard is not None]
    manifest = Manifest(
        dataset="d",
        version=version,
        created_at="2026-01-02T03:04:05Z",
        plan_digest=f"p{version}",
        run_digest="f00d",
        source="/data/d",
        source_digest="cafe",
        classes=sorted({row[2] for row in rows}),
        container="gzip",
        config=config or {},
        codecs={},
        shards=kept,
        inputs=files,
        accounting=Accounting(
            num_inputs=len(rows),
            num_records=outcomes["record"],
            num_duplicates=outcomes["duplicate"],
            num_filtered=0,
            num_quarantined=outcomes["quarantined"],
        ),
        splits=summarise_splits(kept),
    )
    return Catalog(root).publish(manifest)


def _input(uri: str, content: str, label: str, split: str, outcome: str) -> dict[str, Any]:
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    row: dict[str, Any] = dict.fromkeys(INPUTS_SCHEMA.names)
    known = {"uri": uri, "sha256": sha256, "label": label, "split": split, "outcome": outcome}
    return row | known | {"record_id": None if outcome == "quarantined" else sha256[:16]}


def _shard(version: int, split: str, rows: list[Row]) -> Shard | None:
    labels = [row[2] for row in rows if row[3] == split and row[4] == "record"]
    if not labels:
        return None
    # The shard of a split is the same file wherever it has the same number of records.
    path = f"data/{split}-{len(labels)}"
    return Shard(
        path=path, index_path=path, split=split, num_examples=len(labels), num_bytes=100, payload_bytes=90,
        sha256="", index_bytes=10, index_sha256="", class_counts=dict(Counter(labels)),
    )  # fmt: skip


NEW_CAT: Row = ("a/cat.jpg", "a new cat", "a", "train", "record")
RELABELLED: Row = ("a/cat.jpg", "cat", "b", "train", "record")
MOVED: Row = ("a/cat.jpg", "cat", "a", "test", "record")
BROKEN_CAT: Row = ("a/cat.jpg", "cat", "a", "train", "quarantined")

# what changed, rows before, rows after, expected: kind of change -> URIs
CASES: list[tuple[str, list[Row], list[Row], dict[str, list[str]]]] = [
    ("nothing", [CAT, DOG], [CAT, DOG], {}),
    (
        "a new file",
        [CAT],
        [CAT, DOG],
        {"inputs_added": ["b/dog.jpg"], "records_added": ["b/dog.jpg"]},
    ),
    (
        "a file that left",
        [CAT, DOG],
        [CAT],
        {"inputs_removed": ["b/dog.jpg"], "records_removed": ["b/dog.jpg"]},
    ),
    (
        "another copy",
        [DOG],
        [DOG, DOG_AGAIN],
        {"inputs_added": ["c/dog.jpg"]},
    ),
    (
        "the kept copy left",
        [DOG, DOG_AGAIN],
        [("c/dog.jpg", "dog", "b", "train", "record")],
        {"inputs_removed": ["b/dog.jpg"], "outcomes_changed": ["c/dog.jpg"]},
    ),
    (
        "other content",
        [CAT, DOG],
        [NEW_CAT, DOG],
        {"inputs_changed": ["a/cat.jpg"], "records_added": ["a/cat.jpg"], "records_removed": ["a/cat.jpg"]},
    ),
    ("another label", [CAT, DOG], [RELABELLED, DOG], {"relabelled": ["a/cat.jpg"]}),
    ("another split", [CAT, DOG], [MOVED, DOG], {"moved": ["a/cat.jpg"]}),
    (
        "a file that broke",
        [CAT, DOG],
        [BROKEN_CAT, DOG],
        {"outcomes_changed": ["a/cat.jpg"], "records_removed": ["a/cat.jpg"]},
    ),
    (
        "moved to another folder and relabelled so",
        [CAT],
        [("b/cat.jpg", "cat", "b", "train", "record")],
        {"inputs_added": ["b/cat.jpg"], "inputs_removed": ["a/cat.jpg"], "relabelled": ["b/cat.jpg"]},
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_each_kind_of_change_is_told(
    old: list[Row], new: list[Row], expected: dict[str, list[str]], tmp_path: Path
) -> None:
    found = diff(publish(tmp_path, 1, {"one": old}), publish(tmp_path, 2, {"two": new}))
    told = {
        name: [example.uri for example in changes.examples]
        for name, changes in found.changes().items()
        if changes.count
    }
    assert told == expected
    assert found.is_empty == (not expected)


def test_before_and_after_counts_and_shards(tmp_path: Path) -> None:
    old = publish(tmp_path, 1, {"one": [CAT, DOG, OWL]})
    new = publish(tmp_path, 2, {"two": [RELABELLED, DOG]})
    found = diff(old, new)
    (change,) = found.relabelled.examples
    assert (change.before, change.after) == ("a", "b")
    assert found.class_counts == {"a": (2, 0), "b": (1, 2)}
    assert (found.num_shards_inherited, found.num_shards_written, found.num_bytes_written) == (1, 0, 0)


def test_a_part_that_both_have_is_not_read(tmp_path: Path) -> None:
    old = publish(tmp_path, 1, {"same": [CAT], "one": [DOG]})
    new = publish(tmp_path, 2, {"same": [CAT], "two": [OWL]})
    (tmp_path / "d/data/same").write_bytes(b"unreadable")
    found = diff(old, new)
    assert (found.records_added.count, found.records_removed.count) == (1, 1)


def test_examples_are_bounded_and_the_first(tmp_path: Path) -> None:
    rows: list[Row] = [(f"a/{number:03}", str(number), "a", "train", "record") for number in range(50)]
    found = diff(publish(tmp_path, 1, {"one": [CAT]}), publish(tmp_path, 2, {"two": rows}), examples=3)
    assert found.records_added.count == 50
    assert [example.uri for example in found.records_added.examples] == ["a/000", "a/001", "a/002"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path, 1, {"one": [CAT]})
    assert cli.run(["diff", "d", "--root", str(tmp_path)]) == 2
    assert "d@1 has no version before it" in capsys.readouterr().err
    publish(tmp_path, 2, {"two": [CAT, DOG]})
    for argv in (["d"], ["d@1"], ["d@1", "d@2"]):
        assert cli.run(["diff", *argv, "--root", str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert "From d@1 to d@2" in told
        assert "\n  1 input added\n    b/dog.jpg\n  1 record added\n    b/dog.jpg\n" in told
    assert cli.run(["diff", "d", "--json", "--root", str(tmp_path)]) == 0
    assert '"records_added": {"count": 1' in capsys.readouterr().out


def test_the_command_names_settings_that_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path, 1, {"x": [CAT, OWL]}, {"image": {"size": 256}, "runner": {"processes": 2}})
    publish(tmp_path, 2, {"y": [CAT, OWL]}, {"image": {"size": 64}, "runner": {"processes": 1}})
    assert cli.run(["diff", "d", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "From d@1 to d@2:",
        "  1 setting changed",
        "    image.size: 256 -> 64",
        "  the same inputs and the same records, stored by other settings",
    ]
    assert cli.run(["diff", "d", "--json", "--root", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["settings_changed"] == {"image.size": ["256", "64"]}
    publish(tmp_path, 3, {"y": [CAT, OWL]}, {"image": {"size": 64}, "a_later": {"setting": 1}})
    assert cli.run(["diff", "d", "--root", str(tmp_path)]) == 0
    assert "a_later.setting: — -> 1" in capsys.readouterr().out
