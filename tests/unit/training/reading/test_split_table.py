"""The table of a split that each rank holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import CorruptDataError
from shardmill.training.reading import load_table
from shardmill.training.reading.records.record_ids import id_number, id_numbers, id_text
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"cat": 14, "dog": 22, "eel": 9}, "test": {"dog": 4}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    publish(folder, coloured(COUNTS), name="zoo", shards_per_split=3)
    return folder


@pytest.mark.parametrize("ref", ["zoo", "zoo?label == 'dog'", "zoo?label == 'dog' and height > 9999"])
def test_the_table_has_the_rows_of_the_indexes(root: Path, ref: str) -> None:
    version = Catalog(root).open_view(ref)
    shards = version.shards("train")
    rows = pa.concat_tables([version.rows(shard) for shard in shards])
    table = load_table(version, "train")
    assert len(table) == rows.num_rows
    assert table.ids(np.arange(len(table))) == rows["id"].to_pylist()
    for name in ("offset_bytes", "length_bytes", "label", "height", "width"):
        assert getattr(table, name).tolist() == rows[name].to_pylist()
    assert len(load_table(version, "validation")) == 0


def test_a_record_takes_36_bytes(root: Path) -> None:
    table = load_table(Catalog(root).open("zoo"), "train")
    columns = (getattr(table, name) for name in table.__slots__)
    held = sum(column.nbytes for column in columns if isinstance(column, np.ndarray))
    assert held == 36 * len(table) == 36 * 45


def test_ids_are_numbers_of_64_bits() -> None:
    ids = ["0000000000000000", "00000000000000ff", "0123456789abcdef", "ffffffffffffffff"]
    numbers = id_numbers(pa.chunked_array([ids[:1], ids[1:]], pa.string()))
    assert numbers.dtype == np.uint64
    assert numbers.tolist() == [0, 255, 0x0123456789ABCDEF, 2**64 - 1] == [id_number(name) for name in ids]
    assert [id_text(number) for number in numbers] == ids
    sliced = pa.chunked_array([pa.array(["x", *ids]).slice(1, 2)])
    assert id_numbers(sliced).tolist() == [0, 255]
    assert id_numbers(pa.chunked_array([], pa.string())).size == 0


@pytest.mark.parametrize("name", ["123", "0123456789ABCDEF", "0123456789abcdeg", "0123456789abcdef0", None])
def test_another_id_is_refused(name: str | None) -> None:
    with pytest.raises(CorruptDataError, match="16 hexadecimal digits"):
        id_numbers(pa.chunked_array([["0" * 16, name]], pa.string()))
