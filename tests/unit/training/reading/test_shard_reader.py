"""Reading records: right ones, in order, and an error with names for every kind of damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.records import CONTAINERS, Container
from shardmill.training.reading import load_table
from shardmill.training.reading.shard_reader import open_records
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"a": 7, "b": 4}, "test": {"a": 2, "b": 1}}


def make(root: Path, container: Container = "gzip") -> DatasetVersion:
    return publish(root, coloured(COUNTS), container=container, shards_per_split=3)


def shard_path(version: DatasetVersion, number: int = 0) -> Path:
    path = version.storage.local_path(version.shards("train")[number].path)
    assert path is not None
    return path


@pytest.mark.parametrize("container", CONTAINERS)
def test_records_are_those_of_the_index_in_any_order(tmp_path: Path, container: Container) -> None:
    version = make(tmp_path, container)
    table = load_table(version, "train")
    assert len(table) == 11
    assert table.paths == tuple(shard.path for shard in version.shards("train"))
    ordinals = np.array([10, 0, 3, 3])
    records = open_records(version, table).read_many(ordinals)
    assert [record.id for record in records] == table.ids(ordinals)
    assert [record.label for record in records] == table.label[ordinals].tolist()
    assert len(load_table(version, "validation")) == 0


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_flipped_byte_names_shard_and_record(tmp_path: Path, container: Container) -> None:
    version = make(tmp_path, container)
    table = load_table(version, "train")
    broken = 1
    path = shard_path(version)
    data = bytearray(path.read_bytes())
    data[int(table.offset_bytes[broken]) + 60] ^= 0x40
    path.write_bytes(bytes(data))
    reader = open_records(version, table)
    assert reader.read(0).id == table.ids(np.array([0]))[0]
    with pytest.raises(CorruptDataError) as caught:
        reader.read(broken)
    assert table.ids(np.array([broken]))[0] in caught.value.message
    assert "train-00000-of-00003" in caught.value.message
    assert "verify sample@1" in str(caught.value.remedy)


def test_every_flipped_bit_of_a_record_is_noticed(tmp_path: Path) -> None:
    """No single wrong byte of a stored record ever yields a record, in either container."""
    for container in CONTAINERS:
        version = make(tmp_path / container, container)
        table = load_table(version, "train")
        path = shard_path(version)
        data = path.read_bytes()
        reader = open_records(version, table)
        good = reader.read(0)
        start, length = int(table.offset_bytes[0]), int(table.length_bytes[0])
        for place in range(start, start + length, 7):
            with path.open("r+b") as file:
                file.seek(place)
                file.write(bytes([data[place] ^ 0xFF]))
            try:
                # Nothing depends on some bytes of a gzip header (time, system); the record may not change.
                assert reader.read(0) == good
                assert container == "gzip"
                assert place - start < 10
            except CorruptDataError:
                pass
            with path.open("r+b") as file:
                file.seek(place)
                file.write(data[place : place + 1])
        assert reader.read(0) == good


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda shard, index: shard.unlink(), "no such file"),
        (lambda shard, index: index.unlink(), "no such file"),
        (lambda shard, index: shard.write_bytes(shard.read_bytes()[:-1]), "the manifest of sample@1 says"),
        (lambda shard, index: index.write_bytes(index.read_bytes() + b"x"), "differs from the index"),
        (lambda shard, index: index.write_bytes(bytes(len(index.read_bytes()))), "differs from the index"),
    ],
)
def test_damage_is_found_when_the_table_is_loaded(tmp_path: Path, damage: object, message: str) -> None:
    version = make(tmp_path)
    index = version.storage.local_path(version.shards("train")[0].index_path)
    damage(shard_path(version), index)  # type: ignore[operator]
    with pytest.raises(CorruptDataError, match="train-00000-of-00003") as caught:
        load_table(version, "train")
    assert message in caught.value.message


def test_a_shard_truncated_after_loading_is_noticed(tmp_path: Path) -> None:
    version = make(tmp_path)
    table = load_table(version, "train")
    path = shard_path(version)
    path.write_bytes(path.read_bytes()[:-5])
    last = int(np.flatnonzero(table.shard == 0)[-1])
    with pytest.raises(CorruptDataError, match="the shard ends after"):
        open_records(version, table).read(last)


def test_an_index_that_points_at_another_record_is_noticed(tmp_path: Path) -> None:
    version = make(tmp_path)
    table = load_table(version, "train")
    table.offset_bytes[[0, 1]] = table.offset_bytes[[1, 0]]
    table.length_bytes[[0, 1]] = table.length_bytes[[1, 0]]
    with pytest.raises(CorruptDataError, match="the index says"):
        open_records(version, table).read(0)
