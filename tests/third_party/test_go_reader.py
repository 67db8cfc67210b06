"""A reader in Go, written from the page of the format alone, reads datasets of every kind record by record.

TensorFlow reads the same shards here; the reader in Go shares no code with it or with Shardmill.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from tests.samples.datasets.published import coloured, publish
from tests.third_party.test_label_kinds import COLUMNS, published

pytestmark = pytest.mark.slow
PICTURES = coloured({"train": {"red fox": 60, "späte\nEule": 40}, "test": {"red fox": 4, "späte\nEule": 1}})


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of ``go_reader``, compiled."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("the reader in Go was NOT checked: there is no Go here")
    program = tmp_path_factory.mktemp("go") / "reader"
    built = subprocess.run(
        [go, "build", "-o", program, "."],
        cwd=Path(__file__).parent / "go_reader",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if built.returncode and "dial tcp" in built.stderr + built.stdout:
        pytest.skip(f"the reader in Go was NOT checked: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return program


def read(reader: Path, *arguments: object) -> list[dict[str, Any]]:
    done = subprocess.run(
        [reader, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def read_by_tensorflow(folder: Path, version: DatasetVersion) -> list[dict[str, Any]]:
    """The records of all shards in stored order, in the form that the reader in Go prints."""
    import tensorflow as tf

    found = []
    for shard in version.manifest.shards:
        compression = "GZIP" if shard.path.endswith(".gz") else ""
        for row, record in enumerate(tf.data.TFRecordDataset(str(folder / shard.path), compression)):
            example = tf.train.Example.FromString(record.numpy())
            features = {key: _values(value) for key, value in example.features.feature.items()}
            found.append({"split": shard.split, "shard": shard.path, "row": row, "features": features})
    return found


def _values(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value)
    if kind == "bytes_list":
        return [value.hex() for value in values]
    if kind == "float_list":
        names = {math.inf: "+Inf", -math.inf: "-Inf"}
        return ["NaN" if math.isnan(value) else names.get(value, value) for value in values]
    return values


@pytest.mark.parametrize("container", ["gzip", "none"])
def test_the_reader_in_go_reads_what_tensorflow_reads(container: Any, reader: Path, tmp_path: Path) -> None:
    publish(tmp_path, PICTURES, name="d", shards_per_split=3, container=container)
    version = Catalog(tmp_path).open("d")
    expected = read_by_tensorflow(tmp_path / "d", version)
    assert len(expected) == 105
    assert read(reader, tmp_path / "d") == expected
    train = [one for one in expected if one["split"] == "train"]
    positions = [99, 0, 41, 7, 7, 66]
    assert read(reader, tmp_path / "d", 1, "train", *positions) == [train[at] for at in positions]


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_reader_in_go_reads_labels_of_each_kind(kind: str, reader: Path, tmp_path: Path) -> None:
    version = published(kind, tmp_path / "source", tmp_path / "root")
    expected = read_by_tensorflow(tmp_path / "root/d", version)
    assert len(expected) == version.manifest.accounting.num_records > 10
    assert read(reader, tmp_path / "root/d") == expected


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        ("shard", "has the SHA-256"),
        ("index", "has the SHA-256"),
        ("manifest", "the seal of the manifest is broken"),
    ],
)
def test_the_reader_in_go_sees_damage(damaged: str, said: str, reader: Path, tmp_path: Path) -> None:
    publish(tmp_path, PICTURES, name="d")
    manifest = tmp_path / "d/manifests/000001.json"
    if damaged == "manifest":
        manifest.write_text(manifest.read_text().replace("red fox", "red fix", 1))
    else:
        shard = Catalog(tmp_path).open("d").manifest.shards[0]
        path = tmp_path / "d" / (shard.path if damaged == "shard" else shard.index_path)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    done = subprocess.run([reader, tmp_path / "d"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert said in done.stderr
