"""Label edits: the decision of each row, errors for rows that make no sense, and listings with edits."""

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
from shardmill.beam_jobs.sources.label_edits import SETTING, LabelEdits, read_label_edits
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.errors import ConfigError, DataError, NotFoundError
from shardmill.infra.settings import validate
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.archives import make_tar

HEADER = "id,source_uri,split,given_label,suggested_label,score,decision,label\n"
FOLDER = {f"{label}/{number}.jpg": jpeg(number) for label in ("cat", "dog") for number in (1, 2)}


def read(folder: Path, text: str | bytes, name: str = "edits.csv") -> LabelEdits:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return read_label_edits(SourceFolder(str(folder)), "*.csv")


def test_a_list_of_suggestions_decides_nothing_until_a_person_does(tmp_path: Path) -> None:
    rows = [
        "0a,cat/1.jpg,train,cat,dog,0.9,,",
        "0b,cat/2.jpg,train,cat,dog,0.8,accept,",
        "0c,cat/3.jpg,train,cat,dog,0.7,Drop,",
        "0d,cat/4.jpg,train,cat,dog,0.6,keep,",
        '0e,cat/5.jpg,train,cat,dog,0.5,," big, dog "',
    ]
    edits = read(tmp_path, HEADER + "\n".join(rows) + "\n\n")
    assert edits == LabelEdits({"cat/2.jpg": "dog", "cat/3.jpg": None, "cat/5.jpg": "big, dog"}, 2)


@pytest.mark.parametrize(
    "text",
    [
        "source_uri,label\na/1.jpg,b\n",
        "source_uri;label\r\na/1.jpg;b\r\n",  # spreadsheets of some languages
        "\ufeffsource_uri\tlabel\tcomment\na/1.jpg\tb\tblurred\n",
        "source_uri,label\na/1.jpg,b\na/1.jpg,b\n",
    ],
)
def test_two_columns_are_enough_in_csv_of_any_spreadsheet(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text).decided == {"a/1.jpg": "b"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source_uri,labels\na,b\n", ["'labels'", "did you mean 'label'?"]),
        ("id,label\n0a,b\n", ["no column 'source_uri'"]),
        ("source_uri,suggested_label\na,b\n", ["no column 'label'", "'label-errors.csv'"]),
        ("source_uri,label,label\na,b,c\n", ["2 columns 'label'"]),
        ("", ["no column 'source_uri'"]),
        ("source_uri,label\n,b\n", ["line 2 of edits.csv has no source_uri"]),
        ("source_uri,label\na,b,c\n", ["line 2 of edits.csv has 3 values, its header 2"]),
        (
            "source_uri,decision\na,yes\n",
            ["line 2 of edits.csv", "'yes' is no decision", "accept, drop, keep"],
        ),
        ("source_uri,decision,label\na,drop,b\n", ["line 2", "the label 'b' and the decision 'drop'"]),
        ("source_uri,decision\na,accept\n", ["line 2", "accepts a suggested_label, and has none"]),
        ('source_uri,label\na,"b\nc,d"\n', ["several lines"]),
        ('source_uri,label\na,"b\n', ["line 2 of edits.csv is no CSV"]),
        ("source_uri,label\na,b\na,c\n", ["line 3 of edits.csv contradicts line 2 of edits.csv", "'a'"]),
        (
            "data_set,source_uri,label\nx@1,a,b\nx@1?c > 2,d,b\ny@3,a,\ny@3,e,b\n",
            ["line 2 of edits.csv is of the data set x, line 5 of edits.csv of y", "a file for each"],
        ),
        (b"source_uri,label\na,\xff\n", ["edits.csv is not UTF-8"]),
    ],
)
def test_what_makes_no_sense_is_refused(text: str | bytes, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        read(tmp_path, text)
    assert all(word in str(raised.value).replace("label-errors.csv", "'label-errors.csv'") for word in words)


def test_rows_of_several_files_add_up_and_may_not_contradict_each_other(tmp_path: Path) -> None:
    read(tmp_path, "source_uri,label\na,b\n", "1.csv")
    assert read(tmp_path, "source_uri,decision\nc,drop\n", "2.csv").decided == {"a": "b", "c": None}
    with pytest.raises(
        DataError, match=r"line 2 of 3.csv contradicts line 2 of 1.csv about 'a': leave it out"
    ):
        read(tmp_path, "source_uri,decision\na,drop\n", "3.csv")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"gone\.csv"):
        read_label_edits(SourceFolder(str(tmp_path)), "gone.csv")


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
