"""Columns of a table as typed features: from every format, and values of a wrong type."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.config import ColumnsConfig, SourceConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table.tables import find_tables, read_tables
from shardmill.beam_jobs.tables.features import PREFIX, features_of
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import Feature
from tests.samples.sources.columns import with_columns

MISSING_INT = -(1 << 63)


def read(root: Path, name: str, **table: Any) -> pa.Table:
    found = {"kind": "table", **with_columns("table", {"file": name, **table})}
    settings = SourceConfig.model_validate(found)
    return read_tables(find_tables(SourceFolder(str(root)), settings.table), settings)


def from_csv(root: Path, values: list[str], **asked: Any) -> pa.Table:
    lines = [f'{number}.jpg,hat,"{value}"' for number, value in enumerate(values)]
    (root / "t.csv").write_text("\n".join(["path,label,x", *lines]))
    return read(root, "t.csv", features={"x": asked})


def from_json(root: Path, values: list[Any], **asked: Any) -> pa.Table:
    rows = [{"path": f"{number}.jpg", "label": "hat", "x": value} for number, value in enumerate(values)]
    (root / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return read(root, "t.jsonl", features={"x": asked})


def from_parquet(root: Path, values: list[Any], kind: pa.DataType, **asked: Any) -> pa.Table:
    paths = [f"{number}.jpg" for number in range(len(values))]
    table = pa.table({"path": paths, "label": ["hat"] * len(values), "x": pa.array(values, kind)})
    pq.write_table(table, root / "t.parquet")
    return read(root, "t.parquet", features={"x": asked})


def described(rows: pa.Table) -> tuple[str, list[Any]]:
    return str(features_of(rows)[0]), rows[f"{PREFIX}x"].to_pylist()


@pytest.mark.parametrize(
    ("values", "asked", "kind", "found"),
    [
        ([" a ", "", "007"], {}, "text", ["a", None, "007"]),
        (["1", "+2", " -3 ", ""], {"dtype": "int64"}, "int64", [1, 2, -3, None]),
        (["1", ".5", "-2e3", "inf"], {"dtype": "float"}, "float32", [1, 0.5, -2000, math.inf]),
        (
            ["a; b", "c", "", ";"],
            {"separator": ";"},
            "text [any number]",
            [["a", "b"], ["c"], None, ["", ""]],
        ),
        (
            ["1 2", "3 x", "4"],
            {"separator": " ", "dtype": "int64", "length": 2},
            "int64 [2]",
            [[1, 2], None, None],
        ),
    ],
)
def test_csv(values: list[str], asked: dict[str, Any], kind: str, found: list[Any], tmp_path: Path) -> None:
    assert described(from_csv(tmp_path, values, **asked)) == (kind, found)


@pytest.mark.parametrize(
    ("values", "asked", "kind", "found"),
    [
        ([1, None, True], {}, "int64", [1, None, 1]),
        ([1, 2.5], {}, "float32", [1.0, 2.5]),
        (["1", " b"], {}, "text", ["1", " b"]),
        ([1, "b"], {"dtype": "text"}, "text", ["1", "b"]),
        (["1", 2], {"dtype": "int64"}, "int64", [1, 2]),
        ([[1, 2], [], None, [None]], {}, "int64 [any number]", [[1, 2], [], None, [MISSING_INT]]),
        ([["a"], [None, "b"]], {}, "text [any number]", [["a"], ["", "b"]]),
        ([None, None], {}, "text", [None, None]),
    ],
)
def test_json(values: list[Any], asked: dict[str, Any], kind: str, found: list[Any], tmp_path: Path) -> None:
    assert described(from_json(tmp_path, values, **asked)) == (kind, found)


@pytest.mark.parametrize(
    ("values", "arrow", "asked", "kind", "found"),
    [
        ([1, None], pa.int8(), {}, "int64", [1, None]),
        ([True, None], pa.bool_(), {}, "int64", [1, None]),
        ([1, 2], pa.int32(), {"dtype": "float"}, "float32", [1.0, 2.0]),
        ([1.0, math.nan], pa.float64(), {"dtype": "int64"}, "int64", [1, None]),
        ([Decimal("1.5")], pa.decimal128(4, 2), {}, "float32", [1.5]),
        ([" a ", None], pa.large_string(), {}, "text", [" a ", None]),
        ([b"\xff", None], pa.binary(), {}, "bytes", [b"\xff", None]),
        (["a"], pa.string(), {"dtype": "bytes"}, "bytes", [b"a"]),
        ([0], pa.date32(), {}, "text", ["1970-01-01"]),
        ([[1.0, 2.0]], pa.list_(pa.float16(), 2), {}, "float32 [2]", [[1.0, 2.0]]),
        ([[1, None], None], pa.list_(pa.int8()), {"length": 2}, "int64 [2]", [[1, MISSING_INT], None]),
        ([["a"], []], pa.large_list(pa.string()), {}, "text [any number]", [["a"], []]),
        (["a", "b"], pa.dictionary(pa.int8(), pa.string()), {}, "text", ["a", "b"]),
    ],
)
def test_parquet(
    values: list[Any], arrow: pa.DataType, asked: dict[str, Any], kind: str, found: list[Any], tmp_path: Path
) -> None:
    assert described(from_parquet(tmp_path, values, arrow, **asked)) == (kind, found)


@pytest.mark.parametrize(("dtype", "kind"), [("int64", "int64"), ("float", "float32")])
def test_truth_values_in_csv_are_numbers(dtype: str, kind: str, tmp_path: Path) -> None:
    """As Python, pandas, R and Excel write what Parquet has as 1 and 0."""
    rows = from_csv(tmp_path, ["True", "False", "TRUE", " false ", "1", "", "yes"], dtype=dtype)
    assert described(rows) == (kind, [1, 0, 1, 0, 1, None, None])
    assert rows["fault"].to_pylist()[-1] == f"its x is 'yes', not a {'whole ' * (kind == 'int64')}number"
    lists = from_csv(tmp_path, ["True,0", "false"], dtype=dtype, separator=",")
    assert described(lists) == (f"{kind} [any number]", [[1, 0], [0]])
    assert described(from_csv(tmp_path, ["True", "no"]))[0] == "text"


def test_a_value_of_another_type_makes_its_row_broken(tmp_path: Path) -> None:
    rows = from_csv(tmp_path, ["1", "two", ""], dtype="float")
    assert rows["fault"].to_pylist() == [None, "its x is 'two', not a number", None]
    rows = from_csv(tmp_path, ["1 2", "1 2 3", "1 b"], dtype="int64", separator=" ", length=2)
    assert rows["fault"].to_pylist() == [
        None,
        "its x has 3 values, not 2",
        "its x is 'b', not a whole number",
    ]
    rows = from_json(tmp_path, [1, [2], 3])
    assert rows["fault"].to_pylist() == [None, "its x is a list, where other rows have one value", None]
    rows = from_json(tmp_path, [[1], 2, [[3]]])
    assert rows["fault"].to_pylist() == [
        None,
        "its x is one value, where other rows have a list",
        "its x holds a list or an object in place of a value",
    ]
    assert rows[f"{PREFIX}x"].to_pylist() == [[1], None, None]


def test_several_tables_give_a_feature_one_type(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"path": "1.jpg", "label": "a", "x": 1}')
    (tmp_path / "2.jsonl").write_text('{"path": "2.jpg", "label": "a", "x": 2.5}')
    (tmp_path / "3.jsonl").write_text('{"path": "3.jpg", "label": "a", "x": null}')
    assert described(read(tmp_path, "*.jsonl", features=["x"])) == ("float32", [1.0, 2.5, None])
    (tmp_path / "4.jsonl").write_text('{"path": "2.jpg", "label": "a", "x": "b"}')
    with pytest.raises(ConfigError, match="has several types in the tables"):
        read(tmp_path, "*.jsonl", features=["x"])


def test_what_can_be_no_feature_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds numbers and texts"):
        from_json(tmp_path, [1, "b"])
    with pytest.raises(ConfigError, match=r"holds list<.*list"):
        from_parquet(tmp_path, [[[1]]], pa.list_(pa.list_(pa.int8())))
    with pytest.raises(ConfigError, match="holds single values"):
        from_csv(tmp_path, ["1"], length=3)
    with pytest.raises(ConfigError, match="no column 'y' for the feature x"):
        from_csv(tmp_path, ["1"], column="y")
    with pytest.raises(ConfigError, match="is not a whole number"):
        from_parquet(tmp_path, [1 << 63], pa.uint64(), dtype="int64")


@pytest.mark.parametrize("name", ["image", "label", "two words", "1st", "labels", "source_uri"])
def test_names_that_no_feature_may_have(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        ColumnsConfig.model_validate({"features": [name]})


def test_features_may_be_named_in_short() -> None:
    config = ColumnsConfig.model_validate({"features": {"x": "Column X", "y": {}}})
    assert [(name, asked.column) for name, asked in config.features.items()] == [
        ("x", "Column X"),
        ("y", None),
    ]
    assert set(ColumnsConfig.model_validate({"features": ["a", "b"]}).further) == {"a", "b"}
    assert set(ColumnsConfig.model_validate({"features": "a"}).further) == {"a"}


def test_the_length_goes_with_a_fixed_shape_only() -> None:
    with pytest.raises(ValueError, match="length"):
        Feature(name="x", dtype="int64", shape="fixed")
