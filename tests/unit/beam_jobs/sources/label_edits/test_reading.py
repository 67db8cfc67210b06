"""Read label edits: the decision of each row, and the errors for rows that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.label_edits import LabelEdits, read_label_edits
from shardmill.infra.errors import DataError, NotFoundError

HEADER = "id,source_uri,split,given_label,suggested_label,score,decision,label\n"


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
