"""Tables as people have them: delimiters, encodings, broken rows, numbers; and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table.tables import find_tables, read_tables
from shardmill.infra.errors import ConfigError, NotFoundError
from tests.samples.sources.columns import with_columns

Row = tuple[Any, ...]


def read(root: Path, data: bytes | str, name: str = "t.csv", **table: Any) -> list[Row]:
    """(number, path, label, fault) of each row."""
    (root / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    found = {"kind": "table", **with_columns("table", {"file": name, **table})}
    settings = SourceConfig.model_validate(found)
    rows = read_tables(find_tables(SourceFolder(str(root)), settings.table), settings)
    return list(zip(*(rows[key].to_pylist() for key in ("number", "path", "label", "fault")), strict=True))


PLAIN = [(1, "1.jpg", "hat", None), (2, "2.jpg", "café", None)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "path,label\n1.jpg,hat\n2.jpg,café\n"),
        ("t.csv", "path,label\r\n1.jpg,hat\r\n2.jpg,café"),
        ("t.csv", "path,label\r1.jpg,hat\r2.jpg,café\r"),
        ("t.csv", "\n\nlabel;path;more\nhat;1.jpg;a,b\n\n\ncafé;2.jpg;\n"),
        ("t.tsv", "path\tlabel\n1.jpg\that\n2.jpg\tcafé\n"),
        ("t.txt", "label|path\nhat|1.jpg\ncafé|2.jpg\n"),
        ("t.csv", ' path , label \n "1.jpg" ,hat\n2.jpg,"café "\n'.replace(' "1.jpg" ', "1.jpg ")),
        ("t.csv", '"path","label","caption"\n1.jpg,hat,"two\nlines, ""quoted"""\n2.jpg,café,5"\n'),
        ("t.csv", "path,label,x,x\n1.jpg,hat,,\n2.jpg,café,1,2\n"),
        (
            "t.jsonl",
            '{"path": "1.jpg", "label": "hat"}\n\n{"label": "caf\\u00e9", "path": "2.jpg", "x": [1]}',
        ),
        ("t.ndjson", '{"path": "1.jpg", "label": "hat"}\r\n{"path": "2.jpg", "label": "café"}\r\n'),
    ],
)
def test_one_table_written_in_many_ways(name: str, text: str, tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert read(tmp_path, text.encode(encoding), name) == PLAIN
    assert read(tmp_path, text.encode("cp1252"), name, encoding="cp1252") == PLAIN
    assert read(tmp_path, text.encode("utf-16-be"), name, encoding="utf-16-be") == PLAIN


def test_parquet(tmp_path: Path) -> None:
    labels = pa.array(["hat", "café"]).dictionary_encode()
    pq.write_table(pa.table({"path": ["1.jpg", "2.jpg"], "label": labels, "x": [[1], []]}), tmp_path / "t.pq")
    assert read(tmp_path, (tmp_path / "t.pq").read_bytes(), "t.parquet") == PLAIN


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([7, None]), ["7", None]),
        (pa.array([1.0, None]), ["1", None]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([b"hat", b"caf\xc3\xa9"]), ["hat", "café"]),
        (pa.array([" a ", "  "]), ["a", None]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_labels_that_are_no_plain_texts(values: pa.Array, expected: list[str | None], tmp_path: Path) -> None:
    pq.write_table(pa.table({"path": ["1", "2"], "label": values}), tmp_path / "t.pq")
    assert [row[2] for row in read(tmp_path, (tmp_path / "t.pq").read_bytes(), "t.pq")] == expected


def test_numbers_in_text_stay_as_they_are_written(tmp_path: Path) -> None:
    assert read(tmp_path, "path,label\n0012,007\n1e3,NA\n") == [
        (1, "0012", "007", None),
        (2, "1e3", "NA", None),
    ]
    lines = [
        {"path": 12, "label": 7},
        {"path": 1.5, "label": None},
        {"path": "a"},
        {"path": "b", "label": True},
    ]
    found = read(tmp_path, "\n".join(map(json.dumps, lines)), "t.jsonl")
    assert [row[1:3] for row in found] == [("12", "7"), ("1.5", None), ("a", None), ("b", "true")]


def test_broken_rows_keep_their_number_and_say_what_is_wrong(tmp_path: Path) -> None:
    found = read(tmp_path, "path,label\n1,a\n2\n\n3,b,c\n4,d\n")
    assert [row[:3] for row in found] == [(1, "1", "a"), (2, None, None), (3, None, None), (4, "4", "d")]
    assert found[1][3] == "it has 1 value, the header 2: '2'"
    assert found[2][3] == "it has 3 values, the header 2: '3,b,c'"
    lines = [
        '{"path": "1", "label": "a"}',
        "{'path': 1}",
        "[1]",
        '{"path": ["x"]}',
        '{"path": "\\ud800"}',
        "[" * 99_999,
    ]
    found = read(tmp_path, "\n".join(lines), "t.jsonl")
    assert found[0] == (1, "1", "a", None)
    assert [row[0] for row in found] == [1, 2, 3, 4, 5, 6]
    for row, says in zip(
        found[1:], ("is not JSON", "is not a JSON object", "holds a list", "surrogate", "is not"), strict=True
    ):
        assert says in row[3]


def test_quotes_may_be_part_of_values(tmp_path: Path) -> None:
    found = read(tmp_path, 'path\tlabel\n1\t"Best" hat\n2\t"open\n3\t15"\n', "t.tsv", quotes=False)
    assert [row[1:] for row in found] == [("1", '"Best" hat', None), ("2", '"open', None), ("3", '15"', None)]


def test_all_rows_may_be_broken(tmp_path: Path) -> None:
    assert [row[0] for row in read(tmp_path, "path,label\n1\n2\n")] == [1, 2]
    assert [row[0] for row in read(tmp_path, "x\ny\n", "t.jsonl")] == [1, 2]


@pytest.mark.parametrize(
    ("data", "name", "table", "says", "remedy"),
    [
        (b"image,class\n1,a\n", "t.csv", {}, "no column 'path'.* it has 'image', 'class'", "NAME"),
        (b"path,Label\n1,a\n", "t.csv", {}, "no column 'label'", "label=Label"),
        (b"path,labels\n1,a\n", "t.csv", {}, "no column 'label'", "label=labels"),
        (b"path,label,label\n1,a,b\n", "t.csv", {}, "2 columns 'label'", "rename"),
        (b"path~label\n1~a\n", "t.csv", {}, "does not tell its delimiter: 'path~label'", "delimiter"),
        (b"path;label\n1;a\n", "t.csv", {"delimiter": ","}, "no column 'path'", "delimiter=;"),
        (b'{"a;b": "1"}\n', "t.jsonl", {}, "no column 'path'", "NAME"),
        (b'path,label\n1,a\n2,"b\n3,c\n', "t.csv", {}, "quote .* never closed: its row 2", "close"),
        (b"path,label\n1,caf\xe9\n", "t.csv", {}, "byte 0xe9 in line 2", "encoding=cp1252"),
        ("path,label\n1,a\n".encode("utf-16-le"), "t.csv", {}, "zero bytes", "utf-16-le"),
        (b"\xff\xfep", "t.csv", {}, "is not utf-16", "save"),
        (b"path,label\n1,\xe9\n", "t.csv", {"encoding": "ascii"}, "is not ascii", "ascii is wrong"),
        (b'{"path": 1}\n', "t.jsonl", {}, "no column 'label'", "NAME"),
        (b"PAR1 and so on", "t.parquet", {}, "cannot be read as Parquet", "source.table.format"),
        (b"", "t.parquet", {}, "cannot be read as Parquet", "source.table.format"),
    ],
)  # fmt: skip
def test_tables_that_are_refused(
    data: bytes, name: str, table: dict[str, Any], says: str, remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read(tmp_path, data, name, **table)
    assert remedy in str(caught.value.remedy)


@pytest.mark.parametrize(
    "values", [pa.array([["a"], []]), pa.array([{"b": 1}, None]), pa.array([b"\xff", b""])]
)
def test_a_column_that_holds_no_text_is_refused(values: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"path": ["1", "2"], "label": values}), tmp_path / "t.pq")
    with pytest.raises(ConfigError, match=r"column 'label' .* holds"):
        read(tmp_path, (tmp_path / "t.pq").read_bytes(), "t.pq")


@pytest.mark.parametrize(
    ("data", "name"), [("", "t.csv"), ("\n \n", "t.csv"), ("path,label\n", "t.csv"), ("\n", "t.jsonl")]
)
def test_a_table_without_rows(data: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no row"):
        read(tmp_path, data, name)
