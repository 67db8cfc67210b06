"""Random rows and files, compared with a slow and plain account of them."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shardmill.beam_jobs.config import ColumnsConfig
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, FileRef, Status
from shardmill.beam_jobs.sources.files.walking import FoundFile
from shardmill.beam_jobs.sources.kinds.table.columns import ROWS_SCHEMA
from shardmill.beam_jobs.sources.kinds.table.matching import find_files
from shardmill.beam_jobs.sources.kinds.table.rows import paths_within, understand
from shardmill.beam_jobs.sources.kinds.table.settling import settle
from shardmill.beam_jobs.sources.listing import rows_of_files

SETTINGS = ColumnsConfig(drop_labels=("skip",), merge_labels={"tee": "top"})
FILES = ("a.jpg", "b.jpg", "b.png", "c.jpg")

paths = st.sampled_from([None, "a.jpg", "a", "b", "b.png", "c.jpg", "gone.jpg", "../a.jpg"])
labels = st.sampled_from([None, "top", "tee", "hat", "skip"])
splits = st.sampled_from([None, "train", "test", "odd"])
lines = st.lists(st.tuples(paths, labels, splits), min_size=1, max_size=12)


def listing_of(rows: list[tuple[str | None, str | None, str | None]]) -> pa.Table:
    columns = {
        "table": [0] * len(rows),
        "number": list(range(1, len(rows) + 1)),
        "path": [row[0] for row in rows],
        "label": [row[1] for row in rows],
        "split": [row[2] for row in rows],
        "group": [None] * len(rows),
        "fault": [None] * len(rows),
    }
    files = pa.Table.from_batches(
        [rows_of_files([FoundFile(FileRef(name, 1, 1)) for name in FILES])], LISTING_SCHEMA
    )
    raw = pa.table(columns, ROWS_SCHEMA)
    understood = understand(raw, SETTINGS, paths_within(raw["path"], "/photos", ""), ["t.csv#row="])
    understood, found = find_files(understood, files)
    return settle(files, understood, found.files).listing(None)


def file_of(path: str | None) -> str | None:
    if path in FILES:
        return path
    stems = [name for name in FILES if name.rsplit(".", 1)[0] == path]
    return stems[0] if len(stems) == 1 else None


@given(lines)
def test_every_row_and_file_is_listed_once_and_only_what_is_certain_is_read(
    rows: list[tuple[str | None, str | None, str | None]],
) -> None:
    listed = {row["uri"]: row for row in listing_of(rows).to_pylist()}
    said: defaultdict[str, set[tuple[str | None, str | None]]] = defaultdict(set)
    named = set()
    for path, label, split in rows:
        if (name := file_of(path)) is None:
            continue
        named.add(name)
        if label not in (None, "skip") and split != "odd":
            said[name].add(("top" if label == "tee" else label, split))
    assert len(listed) == len(FILES) + len(rows) - len(named)
    assert list(listed) == sorted(listed)
    for name in FILES:
        row = listed[name]
        if len(said[name]) == 1:
            assert row["status"] == Status.TO_READ
            assert (row["label"], row["split"]) in said[name]
        elif said[name]:
            assert row["reason"] == "contradicting_rows"
        else:
            assert (row["reason"] == "not_in_table") == (name not in named)
            assert row["status"] != Status.TO_READ
    for uri, row in listed.items():
        assert uri in FILES or row["status"] in (Status.FILTERED, Status.QUARANTINED)
        assert (row["status"] == Status.TO_READ) == (row["reason"] is None) == (row["message"] is None)
