"""Listings of several kinds of sources with label edits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.label_edits import SETTING
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import validate
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.archives import make_tar

FOLDER = {f"{label}/{number}.jpg": jpeg(number) for label in ("cat", "dog") for number in (1, 2)}


def listed(folder: Path, edits: str, **settings: Any) -> Listing:
    (folder / "edits.csv").write_text(edits)
    config = {"source": {"label_edits": "edits.csv", **settings.pop("source", {})}, **settings}
    return list_inputs(SourceFolder(str(folder)), PrepareConfig.model_validate(config))


def said(listing: Listing) -> dict[str, tuple[str | None, str | None]]:
    """URI -> (label, reason), without files that are ignored."""
    rows = listing.table.to_pylist()
    return {row["uri"]: (row["label"], row["reason"]) for row in rows if row["reason"] != "ignored"}


def test_labels_change_and_dropped_images_are_left_out_with_a_reason(tmp_path: Path) -> None:
    write(tmp_path, FOLDER)
    edits = "source_uri,decision,label\ncat/1.jpg,,dog\ndog/1.jpg,drop,\ndog/2.jpg,,dog\n"
    listing = listed(tmp_path, edits)
    assert said(listing) == {
        "cat/1.jpg": ("dog", None), "cat/2.jpg": ("cat", None),
        "dog/1.jpg": ("dog", "label_edit"), "dog/2.jpg": ("dog", None),
    }  # fmt: skip
    assert listing.warnings == []
    assert listing.label_edits is not None
    assert (listing.label_edits.num_labels, listing.label_edits.num_left_out) == (1, 1)
    of_file = listing.table.to_pylist()[-1]
    assert (of_file["uri"], of_file["message"]) == ("edits.csv", "source.label_edits names it")


def test_edits_are_part_of_the_digests(tmp_path: Path) -> None:
    write(tmp_path, FOLDER)
    first, same, other = (
        listed(tmp_path, f"source_uri,label\n{rows}\n").label_edits
        for rows in ("cat/1.jpg,dog\ncat/2.jpg,cat", "cat/2.jpg,cat\ncat/1.jpg,dog", "cat/1.jpg,dog")
    )
    assert first == same
    assert other is not None
    assert first is not None
    assert first.sha256 != other.sha256


def test_an_edit_gives_a_label_to_an_image_without_one(tmp_path: Path) -> None:
    write(tmp_path, FOLDER | {"stray.jpg": jpeg(3)})
    listing = listed(tmp_path, "source_uri,label\nstray.jpg,cat\n")
    row = listing.table.filter(pa.compute.equal(listing.table["uri"], "stray.jpg")).to_pylist()[0]
    assert (row["label"], row["status"], row["reason"], row["message"]) == ("cat", Status.TO_READ, None, None)


def test_rows_that_match_nothing_and_new_labels_are_warned_of(tmp_path: Path) -> None:
    write(tmp_path, FOLDER | {"cat/n.txt": b"ignored"})
    rows = "\n".join(f"gone/{number},cat" for number in range(5))
    edits = f"source_uri,label\n{rows}\ncat/1.jpg,dogg\ncat/n.txt,cat\n"
    listing = listed(tmp_path, edits)
    assert listing.warnings == [
        f"5 rows of {SETTING} name no image of the source: 'gone/0', 'gone/1', 'gone/2' and 2 more",
        f"1 row of {SETTING} has no effect, because the image is left out for another reason: 'cat/n.txt'",
        "source.label_edits gives a label that the source does not have: 'dogg'; did you mean 'dog'?",
    ]


def test_classes_that_are_not_kept_are_left_out_by_their_new_label(tmp_path: Path) -> None:
    write(tmp_path, FOLDER)
    edits = "source_uri,label\ncat/1.jpg,dog\ndog/1.jpg,cat\n"
    found = said(listed(tmp_path, edits, filter={"classes": ["cat"]}))
    assert found == {
        "cat/1.jpg": ("dog", "class"), "cat/2.jpg": ("cat", None),
        "dog/1.jpg": ("cat", None), "dog/2.jpg": ("dog", "class"),
    }  # fmt: skip


def test_tables_archives_and_rows_of_files_have_edits_too(tmp_path: Path) -> None:
    table = write(tmp_path / "table", {"1.jpg": jpeg(1), "2.jpg": jpeg(2)})
    (table / "images.csv").write_text("path,label\n1.jpg,a\n2.jpg,Not sure\ngone.jpg,\n")
    source = {"kind": "table", "table": {"file": "images.csv"}, "columns": {"drop_labels": ["Not sure"]}}
    edits = "source_uri,label\n1.jpg,b\n2.jpg,a\nimages.csv#row=3,a\n"
    found = listed(table, edits, source=source)
    assert said(found) | {"images.csv": ("", "")} == {
        "1.jpg": ("b", None), "2.jpg": ("a", None), "images.csv": ("", ""),
        "images.csv#row=3": (None, "no_label"),
    }  # fmt: skip
    assert any("1 row of source.label_edits has no effect" in warning for warning in found.warnings)

    archives = tmp_path / "archives"
    make_tar(archives / "a.tar", {"cat/1.jpg": jpeg(1), "dog/2.jpg": jpeg(2)})
    found = listed(archives, "source_uri,label\na.tar#cat/1.jpg,dog\n", source={"kind": "archive"})
    assert said(found)["a.tar#cat/1.jpg"] == ("dog", None)

    rows = tmp_path / "rows"
    rows.mkdir()
    pq.write_table(pa.table({"image": [jpeg(1), jpeg(2)], "label": ["a", None]}), rows / "r.parquet")
    without = list_inputs(
        SourceFolder(str(rows)), PrepareConfig.model_validate({"source": {"kind": "parquet"}})
    )
    bare = next(row["uri"] for row in without.table.to_pylist() if row["reason"] == "no_label")
    found = listed(rows, f"source_uri,label\n{bare},b\n", source={"kind": "parquet"})
    assert [row["label"] for row in found.to_read().to_pylist()] == ["a", "b"]


@pytest.mark.parametrize("labels", ["multi", "targets", "none"])
def test_other_labels_than_one_class_are_refused(labels: str) -> None:
    settings = {"source": {"kind": "parquet", "labels": labels, "label_edits": "edits.csv"}}
    with pytest.raises(ConfigError, match="label_edits correct the one class of an image"):
        validate(PrepareConfig, settings)


def test_a_file_of_edits_is_not_taken_for_a_table_of_images(tmp_path: Path) -> None:
    write(tmp_path, FOLDER)
    (tmp_path / "label-errors.csv").write_text("id,source_uri,decision,label\n0a,cat/1.jpg,,dog\n")
    config = PrepareConfig.model_validate({"source": {"kind": "auto", "label_edits": "label-errors.csv"}})
    root = str(tmp_path.with_name("root"))
    request = JobRequest(source=str(tmp_path), dataset="d", root=root, config=config)
    assert settled(request).config.source.kind == "image_folder"
