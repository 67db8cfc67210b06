"""Export: a folder for other libraries, made whole or not at all, that leaves the version alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, UsageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.examples import parse_example
from shardmill.infra.format.records import iter_records, unframe
from shardmill.infra.storage.filesystem import Storage
from tests.samples.datasets.published import coloured, publish

PICTURES = coloured({"train": {"fox": 7, "owl": 5}, "validation": {"fox": 1}})


@pytest.fixture(params=["gzip", "none"])
def version(tmp_path: Path, request: pytest.FixtureRequest) -> DatasetVersion:
    return publish(tmp_path / "datasets", PICTURES, container=request.param)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ids(storage: Storage, path: str, container: Any) -> list[str]:
    return [parse_example(payload).id for _, _, payload in iter_records(storage, path, container)]


@pytest.mark.parametrize("copy", [False, True])
def test_shards_hold_the_same_records_and_idx_says_where(
    tmp_path: Path, version: DatasetVersion, copy: bool
) -> None:
    before = files(tmp_path / "datasets")
    made = export(version, tmp_path / "out", copy=copy)
    container = version.manifest.container
    assert made.linked == (container == "none" and not copy)
    assert (made.num_records, made.num_shards) == (13, 3)
    assert files(tmp_path / "datasets") == before
    out = Storage.at(tmp_path / "out")
    names = ["train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"]
    for shard, name in zip(version.manifest.shards, names, strict=True):
        plain = tmp_path / "out" / f"{name}.tfrecord"
        assert plain.is_symlink() == made.linked
        found = ids(out, plain.name, "none")
        assert found == ids(version.storage, shard.path, container)
        lines = plain.with_suffix(".idx").read_text().splitlines()
        data = plain.read_bytes()
        assert [
            parse_example(unframe(data[offset : offset + length])).id
            for offset, length in (map(int, line.split()) for line in lines)
        ] == found
    written = sum(path.stat().st_size for path in (tmp_path / "out").glob("*-of-*"))
    assert made.num_bytes == (0 if made.linked else written)


def test_shards_of_several_plans_are_numbered_through(tmp_path: Path) -> None:
    first = publish(tmp_path / "datasets", PICTURES, container="none")
    shards = first.manifest.shards
    mixed = [shards[1], shards[0], shards[2]]  # as where a version inherits some and wrote others
    version = DatasetVersion(first.storage, Manifest(**dict(first.manifest) | {"shards": mixed}))
    export(version, tmp_path / "out")
    assert (tmp_path / "out/train-00000-of-00002.tfrecord").resolve().name == "train-00001-of-00002.tfrecord"
    info = json.loads((tmp_path / "out/dataset_info.json").read_text())
    lengths = {split["name"]: split["shardLengths"] for split in info["splits"]}
    assert lengths["train"] == [str(shard.num_examples) for shard in mixed[:2]]


@pytest.mark.parametrize(
    ("encoding", "feature"),
    [("jpeg", "Image"), ("png", "Image"), ("webp", "Tensor"), ("raw", "Tensor")],
)
def test_features_are_what_tensorflow_datasets_can_decode(
    tmp_path: Path, encoding: Any, feature: str
) -> None:
    version = publish(tmp_path / "datasets", PICTURES, encoding=encoding)
    export(version, tmp_path / "out")
    features = json.loads((tmp_path / "out/features.json").read_text())["featuresDict"]["features"]
    assert set(features) == set(version.manifest.features)
    assert features["image"]["pythonClassName"].endswith(f".{feature}")


def test_class_names_are_one_line_each(tmp_path: Path) -> None:
    strange = ["a\nb", "bad \udcff byte", "späte Eule"]
    pictures = coloured({"train": dict.fromkeys(strange, 2)})
    export(publish(tmp_path / "datasets", pictures, classes=strange), tmp_path / "out")
    names = (tmp_path / "out/label.labels.txt").read_text(encoding="utf-8").splitlines()
    assert names == ["a\\nb", "bad \\udcff byte", "späte Eule"]


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, version: DatasetVersion) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="out is there already"):
        export(version, tmp_path / "out")
    assert not files(tmp_path / "out")


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_damaged_version_leaves_nothing_behind(tmp_path: Path, damage: str) -> None:
    version = publish(tmp_path / "datasets", PICTURES, container="gzip")
    shard = tmp_path / "datasets" / "sample" / version.manifest.shards[1].path
    if damage == "missing":
        shard.unlink()
    else:
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 0xFF
        shard.write_bytes(data)
    with pytest.raises(CorruptDataError, match=shard.name):
        export(version, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["datasets"]


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path / "datasets", PICTURES, container="none")
    at = ["--root", str(tmp_path / "datasets")]
    assert cli.run(["export", "sample", str(tmp_path / "out"), *at]) == 0
    said = capsys.readouterr().out
    assert "13 records in 3 shards, links to its shards" in said
    assert "--copy" in said
    assert cli.run(["export", "sample@1", str(tmp_path / "copied"), "--copy", "--json", *at]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["folder"] == str(tmp_path / "copied")
    assert (found["num_records"], found["linked"], found["num_bytes"] > 0) == (13, False, True)
    assert cli.run(["export", "sample", str(tmp_path / "out"), *at]) == 0
    assert "has this export of sample@1 already" in capsys.readouterr().out
    assert cli.run(["export", "sample", str(tmp_path / "out"), "--copy", *at]) == 2
    assert "is there already" in capsys.readouterr().err
    assert Catalog(tmp_path / "datasets").versions("sample") == [1]
