"""Further columns of a table as features of the records: stored, changed, compacted, verified."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.maintain.purge import purge
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from tests.samples.datasets.contents import indexed_records
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import run, stored_bytes
from tests.samples.sources.columns import with_columns

COUNT = 24
FEATURES = {
    "stars": {},
    "price": {},
    "caption": "text of the ad",
    "thumb": {},
    "words": {},
    "box": {},
    "scores": {"length": 2},
}
CONFIG: dict[str, Any] = {
    "image": {"size": 16},
    "groups": {"near_duplicates": False},
    "shards": {"num_shards": 2},
}


def columns() -> dict[str, list[Any]]:
    numbers = range(COUNT)
    return {
        "path": [f"{n:02}.jpg" for n in numbers],
        "label": ["cat" if n % 2 else "dog" for n in numbers],
        "stars": [None if n == 3 else n for n in numbers],
        "price": [math.nan if n == 4 else n / 8 for n in numbers],
        "text of the ad": [None if n == 5 else "" if n == 6 else f"ä photo {n} " for n in numbers],
        "thumb": [bytes([n, 0, 255]) for n in numbers],
        "words": [None if n == 7 else [f"w{k}" for k in range(n % 3)] for n in numbers],
        "box": [[1.5 * n, 2, 3, 4] for n in numbers],
        "scores": [None if n == 8 else [n, None] for n in numbers],
    }


def write_table(source: Path, values: dict[str, list[Any]]) -> None:
    types = {"stars": pa.int16(), "price": pa.float64(), "box": pa.list_(pa.float32(), 4)}
    table = pa.table({name: pa.array(column, types.get(name)) for name, column in values.items()})
    pq.write_table(table, source / "ads.parquet")


def config(**table: Any) -> dict[str, Any]:
    settings = {"file": "ads.parquet", "features": FEATURES, **table}
    return {**CONFIG, "source": {"kind": "table", **with_columns("table", settings)}}


def by_name(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    """File -> the row of its record in the index, with the features that the record itself holds."""
    found = {}
    for _, row, _, features in indexed_records(version):
        stored = {name: value.values for name, value in features.items()}
        found[row["source_uri"]] = row | {"stored": stored}
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("features")
    source = write(place / "photos", {f"{n:02}.jpg": jpeg(n + 1) for n in range(COUNT)})
    write_table(source, columns())
    run(source, place / "root", **config())
    return source, place / "root"


def test_records_and_indexes_hold_the_features(made: tuple[Path, Path]) -> None:
    version = Catalog(str(made[1])).open("d@1")
    assert {feature.name: str(feature) for feature in version.manifest.extra_features} == {
        "stars": "int64",
        "price": "float32",
        "caption": "text",
        "thumb": "bytes",
        "words": "text [any number]",
        "box": "float32 [4]",
        "scores": "int64 [2]",
    }
    assert [feature.column for feature in version.manifest.extra_features][2] == "text of the ad"
    found = by_name(version)
    assert found["02.jpg"]["stored"] == {
        "stars": [2],
        "price": [0.25],
        "caption": ["ä photo 2 ".encode()],
        "thumb": [b"\x02\x00\xff"],
        "words": [b"w0", b"w1"],
        "box": [3, 2, 3, 4],
        "scores": [2, -(1 << 63)],
    }
    assert found["02.jpg"]["caption"] == "ä photo 2 "
    assert (found["02.jpg"]["box"], found["02.jpg"]["words"]) == ([3, 2, 3, 4], ["w0", "w1"])
    absent = {
        name: name not in found[f"0{n}.jpg"]["stored"]
        for name, n in {"stars": 3, "price": 4, "caption": 5, "words": 7, "scores": 8}.items()
    }
    assert absent == {"stars": True, "price": False, "caption": True, "words": True, "scores": True}
    assert math.isnan(found["04.jpg"]["stored"]["price"][0])
    assert (found["06.jpg"]["stored"]["caption"], found["06.jpg"]["stored"]["words"]) == ([b""], [])
    assert not verify(version).problems


def test_the_bytes_are_the_same_again(made: tuple[Path, Path], tmp_path: Path) -> None:
    before = dict(stored_bytes(made[1]).items())
    run(made[0], tmp_path, **config())
    first = {path: data for path, data in before.items() if path in stored_bytes(tmp_path)}
    assert first
    assert stored_bytes(tmp_path) == first


def test_a_changed_value_changes_its_record_alone(made: tuple[Path, Path], tmp_path: Path) -> None:
    root = tmp_path / "root"
    run(made[0], root, **config())
    values = columns()
    values["price"][2], values["words"][9] = 7.5, ["new"]
    write_table(made[0], values)
    try:
        outcome = run(made[0], root, **config())
        assert (outcome["version"], outcome["num_encoded"]) == (2, 0)
        version = Catalog(str(root)).open("d@2")
        found = by_name(version)
        assert found["02.jpg"]["stored"]["price"] == [7.5]
        assert found["02.jpg"]["price"] == 7.5
        assert found["09.jpg"]["stored"]["words"] == [b"new"]
        assert not verify(version).problems
        # One feature less: all records are written again, without it; still no image is read.
        fewer = {name: asked for name, asked in FEATURES.items() if name != "box"}
        outcome = run(made[0], root, **config(features=fewer))
        assert (outcome["num_encoded"], outcome["inherited_shards"]) == (0, 0)
        found = by_name(Catalog(str(root)).open("d@3"))
        assert all("box" not in row and "box" not in row["stored"] for row in found.values())
        again = run(made[0], root, **config(features=fewer))
        assert again["unchanged"]
    finally:
        write_table(made[0], columns())


def test_compaction_and_purge_keep_them(made: tuple[Path, Path], tmp_path: Path) -> None:
    root = tmp_path / "root"
    source = write(tmp_path / "photos", {f"{n:02}.jpg": jpeg(n + 1) for n in range(COUNT)})
    write_table(source, {name: column[:12] for name, column in columns().items()})
    run(source, root, **config())
    write_table(source, columns())
    outcome = run(source, root, **config())
    assert outcome["inherited_shards"]
    catalog = Catalog(str(root))
    before = by_name(catalog.open("d"))
    compact(catalog, "d")
    after = catalog.open("d")
    assert {uri: row["stored"] for uri, row in by_name(after).items() if uri != "04.jpg"} == {
        uri: row["stored"] for uri, row in before.items() if uri != "04.jpg"
    }
    assert not verify(after).problems
    purge(catalog, "d", ["02.jpg"])
    left = catalog.open("d")
    assert "02.jpg" not in by_name(left)
    assert not verify(left).problems
    assert by_name(left)["09.jpg"]["stored"] == before["09.jpg"]["stored"]


def test_a_data_set_without_features_has_no_key_for_them(tmp_path: Path) -> None:
    source = write(tmp_path / "photos", {f"{n:02}.jpg": jpeg(n + 1) for n in range(COUNT)})
    write_table(source, columns())
    run(source, tmp_path / "root", **config(features={}))
    manifest = json.loads((tmp_path / "root/d/manifests/000001.json").read_text())
    assert "extra_features" not in manifest
    assert manifest["format_version"] == 2
