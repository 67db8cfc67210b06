"""Each format holds every record once with its label and image; pyarrow, tarfile and others read it back."""

from __future__ import annotations

import base64
import datetime
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.infra.codecs import decode
from shardmill.infra.dataset.exports import FORMATS
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.exports.formats.folder import folder_name
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.examples import ImageRecord, parse_example
from shardmill.infra.format.features import Feature
from shardmill.infra.format.records import iter_records
from shardmill.infra.storage.locations import uri_of
from tests.samples.datasets.published import coloured, publish

PICTURES = coloured({"train": {"red fox": 7, "späte\nEule": 5}, "test": {"red fox": 2}})
Found = dict[str, tuple[str, int, bytes]]  # id -> (split, label, image)


def stored(version: DatasetVersion) -> dict[str, tuple[str, ImageRecord]]:
    """Id -> (split, record), in stored order."""
    return {
        record.id: (shard.split, record)
        for shard in version.manifest.shards
        for _, _, payload in iter_records(version.storage, shard.path, version.manifest.container)
        for record in [parse_example(payload)]
    }


def read_webdataset(folder: Path) -> Found:
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
            assert all(member.mtime == 0 for member in tar)
        keys = sorted({name.partition(".")[0] for name in members})
        for key in keys:
            row = json.loads(members[f"{key}.json"])
            assert row["id"] == key
            assert row["label"] == int(members[f"{key}.cls"])
            [image] = [
                data for name, data in members.items() if name.startswith(key) and name[-3:] in _IMAGES
            ]
            found[key] = (path.name.partition("-")[0], row["label"], image)
    return found


_IMAGES = ("jpg", "png", "npy", "ebp")


def read_parquet(folder: Path) -> Found:
    found = {}
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[b"shardmill"])
        for row in table.to_pylist():
            assert row["label_name"] == about["classes"][row["label"]]
            found[row["id"]] = (about["split"], row["label"], row["image"])
    return found


def read_huggingface(folder: Path) -> Found:
    found = {}
    for path in sorted((folder / "data").glob("*.parquet")):
        table = pq.read_table(path)
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        assert list(features) == table.column_names
        for row in table.to_pylist():
            assert row["label_name"] == features["label"]["names"][row["label"]]
            found[row["id"]] = (path.name.partition("-")[0], row["label"], row["image"]["bytes"])
    return found


def read_array_record(folder: Path) -> Found:
    module = pytest.importorskip("array_record.python.array_record_module")
    found = {}
    for path in sorted(folder.glob("*.arrayrecord")):
        reader = module.ArrayRecordReader(str(path))
        for payload in reader.read_all():
            record = parse_example(payload)
            found[record.id] = (path.name.partition("-")[0], record.label, record.image)
        reader.close()
    return found


def read_folder(folder: Path) -> Found:
    found = {}
    for path in sorted((folder / "index").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            *folders, name = row["file"].split("/")
            split = folders[0]
            assert folders[1:] == ([folder_name(row["label_name"])] if row["label_name"] else [])
            assert name.partition(".")[0] == row["id"]
            found[row["id"]] = (split, row["label"], (folder / row["file"]).read_bytes())
    return found


def read_tfds(folder: Path) -> Found:
    from shardmill.infra.storage.filesystem import Storage

    found = {}
    for path in sorted(folder.glob("*.tfrecord")):
        for _, _, payload in iter_records(Storage.at(folder), path.name, "none"):
            record = parse_example(payload)
            found[record.id] = (path.name.partition("-")[0], record.label, record.image)
    return found


READERS: dict[str, Callable[[Path], Found]] = {
    "webdataset": read_webdataset,
    "parquet": read_parquet,
    "huggingface": read_huggingface,
    "array_record": read_array_record,
    "folder": read_folder,
    "tfds": read_tfds,
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_format_is_tested() -> None:
    assert sorted([*READERS, "yolo"]) == sorted(FORMATS)  # YOLO takes objects alone: test_yolo.py


@pytest.mark.parametrize("container", ["gzip", "none"])
@pytest.mark.parametrize("name", READERS)
def test_every_record_is_there_once_and_the_checksums_are_right(
    tmp_path: Path, name: str, container: Any
) -> None:
    version = publish(tmp_path / "sets", PICTURES, name="birds", container=container, shards_per_split=2)
    made = export(version, tmp_path / "out", name, copy=True)
    expected = {key: (split, record.label, record.image) for key, (split, record) in stored(version).items()}
    assert READERS[name](tmp_path / "out") == expected
    files = contents(tmp_path / "out")
    summary = json.loads(files.pop("export.json"))
    assert summary == made.summary
    splits = {split: found["num_examples"] for split, found in summary["splits"].items()}
    assert splits == {"train": 12, "test": 2}
    assert summary["splits"]["train"]["class_counts"] == {"red fox": 7, "späte\nEule": 5}
    lines = files.pop("checksums.sha256")
    assert hashlib.sha256(lines).hexdigest() == summary["checksums_sha256"]
    checksums = dict(reversed(line.split("  ", 1)) for line in lines.decode().splitlines())
    assert checksums == {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    assert summary["num_files"] == len(files)
    export(version, tmp_path / "again", name, copy=True)
    assert contents(tmp_path / "again") == contents(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "out", "sets"]


@pytest.mark.parametrize("name", READERS)
def test_a_view_exports_its_records_alone(tmp_path: Path, name: str) -> None:
    version = publish(tmp_path / "sets", PICTURES, name="birds", shards_per_split=4)
    ids = sorted(stored(version))
    view = version.query(f"split == 'train' and (label != 'red fox' or id in ('{ids[0]}', '{ids[1]}'))")
    made = export(view, tmp_path / "out", name)
    found = READERS[name](tmp_path / "out")
    assert set(found) == set(view.scan(["id"]).to_table()["id"].to_pylist())
    assert all(found[key][1] == record.label for key, (_, record) in stored(version).items() if key in found)
    assert made.summary["view"]["query"] == view.view.query  # type: ignore[union-attr]
    assert made.num_records == len(found)
    assert not made.linked


@pytest.mark.parametrize("encoding", ["png", "webp", "raw"])
@pytest.mark.parametrize("name", ["webdataset", "huggingface", "folder"])
def test_other_encodings_become_files_that_programs_open(tmp_path: Path, name: str, encoding: Any) -> None:
    version = publish(tmp_path / "sets", PICTURES, encoding=encoding)
    export(version, tmp_path / "out", name)
    found = READERS[name](tmp_path / "out")
    for key, (_, record) in stored(version).items():
        image = found[key][2]
        if encoding != "raw":
            assert image == record.image
        else:
            pixels = np.load(io.BytesIO(image)) if name == "webdataset" else decode(image).pixels
            assert pixels.tobytes() == record.image


FEATURES = [
    Feature(name="caption", dtype="bytes", is_text=True),
    Feature(name="depth", dtype="float32", shape="variable"),
    Feature(name="code", dtype="bytes"),
    Feature(name="votes", dtype="int64", shape="fixed", length=2),
]


def with_columns(version: DatasetVersion, columns: dict[str, pa.Array]) -> DatasetVersion:
    """The version with further columns in the index of its only shard, as a table with features has them."""
    [shard] = version.manifest.shards
    index = version.index(shard)
    for name, values in columns.items():
        index = index.append_column(name, values)
    sink = io.BytesIO()
    pq.write_table(index, sink)
    version.storage.write_atomic(shard.index_path, sink.getvalue())
    changed = shard.model_copy(
        update={
            "index_bytes": len(sink.getvalue()),
            "index_sha256": hashlib.sha256(sink.getvalue()).hexdigest(),
        }
    )
    manifest = Manifest(**dict(version.manifest) | {"shards": [changed], "extra_features": FEATURES})
    return DatasetVersion(version.storage, manifest)


@pytest.fixture
def featured(tmp_path: Path) -> DatasetVersion:
    version = publish(tmp_path / "sets", coloured({"train": {"fox": 2}}), name="birds", shards_per_split=1)
    return with_columns(
        version,
        {
            "caption": pa.array(["a fox", None]),
            "depth": pa.array([[0.5, float("nan")], []], pa.list_(pa.float32())),
            "code": pa.array([b"\xff\x00", b"x"]),
            "votes": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64())),
            "taken": pa.array([datetime.datetime(2024, 5, 1), None], pa.timestamp("us")),
            "camera": pa.array(["K1", "K1"]).dictionary_encode(),
        },
    )


def test_further_columns_travel_along_whatever_their_type(tmp_path: Path, featured: DatasetVersion) -> None:
    for name in READERS:
        export(featured, tmp_path / name, name)
    [table] = [pq.read_table(path) for path in (tmp_path / "parquet").glob("*.parquet")]
    assert table["depth"].to_pylist()[1] == []
    assert table["code"].to_pylist() == [b"\xff\x00", b"x"]
    assert table["camera"].to_pylist() == ["K1", "K1"]
    with tarfile.open(tmp_path / "webdataset" / "train-00000-of-00001.tar") as tar:
        first = json.loads(tar.extractfile(tar.getnames()[2]).read())  # type: ignore[union-attr]
    assert base64.b64decode(first["code"]) == b"\xff\x00"
    assert first["depth"] == [0.5, None]
    assert first["taken"] == "2024-05-01T00:00:00"
    assert first["caption"] == "a fox"
    [hub] = [pq.read_schema(path) for path in (tmp_path / "huggingface/data").glob("*.parquet")]
    features = json.loads(hub.metadata[b"huggingface"])["info"]["features"]
    assert features["votes"] == {"feature": {"dtype": "int64", "_type": "Value"}, "_type": "Sequence"}
    assert features["taken"] == {"dtype": "timestamp[us]", "_type": "Value"}
    assert features["label"] == {"names": ["fox"], "_type": "ClassLabel"}


def test_a_further_feature_may_be_called_mask(tmp_path: Path) -> None:
    version = publish(tmp_path / "sets", coloured({"train": {"fox": 2}}), shards_per_split=1)
    version = with_columns(version, {"mask": pa.array(["a", "b"])})
    for name in READERS:
        export(version, tmp_path / name, name)
    for folder in ("parquet", "huggingface/data"):
        [table] = [pq.read_table(path) for path in (tmp_path / folder).glob("*.parquet")]
        assert table["mask"].to_pylist() == ["a", "b"]
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["mask"] == {"dtype": "string", "_type": "Value"}


def test_tensorflow_datasets_is_told_of_features_that_every_record_has(
    tmp_path: Path, featured: DatasetVersion
) -> None:
    export(featured, tmp_path / "out")
    found = json.loads((tmp_path / "out/features.json").read_text())["featuresDict"]["features"]
    assert sorted(set(found) - set(featured.manifest.features)) == ["code", "depth", "votes"]
    assert found["votes"]["tensor"]["shape"] == {"dimensions": ["2"]}
    assert found["depth"]["tensor"]["shape"] == {"dimensions": ["-1"]}


def test_the_dataset_card_names_the_splits(tmp_path: Path) -> None:
    version = publish(tmp_path / "sets", PICTURES, name="birds")
    export(version, tmp_path / "out", "huggingface")
    head = (tmp_path / "out/README.md").read_text().split("---\n")[1].splitlines()
    values = {key: json.loads(value) for key, _, value in (line.partition(": ") for line in head)}
    assert values["size_categories"] == ["n<1K"]
    assert [file["split"] for file in values["configs"][0]["data_files"]] == ["train", "test"]


STRANGE = ["..", ".", ".hidden", "a/b", "a%2Fb", "a\\b", "bad \udcff byte", "Eule ü 梟", "con:*?|", "a\nb"]


def test_class_names_become_folders_that_stay_inside_and_differ(tmp_path: Path) -> None:
    names = [folder_name(name) for name in STRANGE]
    assert len(set(names)) == len(names)
    assert not any("/" in name or "\\" in name or name.startswith(".") or "\n" in name for name in names)
    pictures = coloured({"train": dict.fromkeys(STRANGE, 1)})
    version = publish(tmp_path / "sets", pictures, classes=STRANGE, shards_per_split=1)
    export(version, tmp_path / "out", "folder")
    assert {path.name for path in (tmp_path / "out/train").iterdir()} == set(names)
    export(version, tmp_path / "table", "parquet")
    [table] = [pq.read_table(path) for path in (tmp_path / "table").glob("*.parquet")]
    assert sorted(table["label_name"].to_pylist()) == sorted(map(uri_of, STRANGE))


def test_a_class_name_that_is_too_long_for_a_folder_is_refused(tmp_path: Path) -> None:
    version = publish(tmp_path / "sets", coloured({"train": {"é" * 200: 1}}))
    with pytest.raises(UsageError, match="too long for a folder"):
        export(version, tmp_path / "out", "folder")


def test_an_unknown_format_suggests_the_near_one(tmp_path: Path) -> None:
    version = publish(tmp_path / "sets", coloured({"train": {"fox": 1}}))
    with pytest.raises(UsageError, match="did you mean 'webdataset'"):
        export(version, tmp_path / "out", "webdatset")
    with pytest.raises(UsageError, match="no records"):
        export(version.query("split == 'test'"), tmp_path / "out")
