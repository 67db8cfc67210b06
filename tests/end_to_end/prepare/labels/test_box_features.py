"""Further columns of a table of boxes as features of the records: stored, changed, read and exported."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shardmill import open_dataset
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.dry_run import dry_run
from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.compare import diff
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.verify import verify
from tests.end_to_end.prepare.labels.test_objects import Annotated, records
from tests.samples.preparing.prepared import rows, run

COUNT = 12
BOX = (10, 24, 50, 70)
FEATURES: dict[str, Any] = {"price": {"dtype": "float"}, "caption": "text of the ad"}
CONFIG: dict[str, Any] = {
    "source": {
        "kind": "box_table",
        "objects": {"annotations": {"file": "boxes.csv", "image_list": "all.txt"}},
        "columns": {"features": FEATURES},
    },
    "image": {"encoding": "png", "size": 48},
    "groups": {"near_duplicates": False},
    "splits": {"train": 1, "validation": 0, "test": 0},
    "shards": {"num_shards": 2},
    "failure_budget": 0.2,
}


def write_table(folder: Path, prices: list[str]) -> None:
    """Write a table with two objects for each price, which is that of an image."""
    top, left, bottom, right = BOX
    with (folder / "boxes.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", "xmin", "ymin", "xmax", "ymax", "price", "text of the ad"])
        for label in ("cat", "dog"):
            for number, price in enumerate(prices):
                writer.writerow([number, label, left, top, right, bottom, price, f"ä photo {number}"])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Images, of which only the list names the last."""
    made = Annotated(tmp_path / "photos")
    for number in range(COUNT):
        made.add(f"{number}.png", [("cat", BOX)] if number < COUNT - 1 else [])
    (made.folder / "all.txt").write_text("\n".join(str(number) for number in range(COUNT)))
    return made.folder


def test_a_changed_feature_of_a_table_of_boxes_changes_its_record_alone(source: Path, tmp_path: Path) -> None:
    root, prices = tmp_path / "root", [str(number / 2) for number in range(COUNT - 1)]
    write_table(source, prices)
    config = PrepareConfig.model_validate(CONFIG)
    foreseen = dry_run(JobRequest(source=str(source), dataset="d", root=str(root), config=config))
    assert (foreseen["features"]["price"], foreseen["features"]["caption"]) == ("float32", "text")
    run(source, root, **CONFIG)
    catalog = Catalog(str(root))
    first = catalog.open("d@1")
    described = {feature.name: feature.column for feature in first.manifest.extra_features}
    assert (described["price"], described["caption"]) == ("price", "text of the ad")
    found = records(first)
    assert (found["3.png"]["price"], found["3.png"]["caption"]) == (1.5, "ä photo 3")
    assert len(found["3.png"]["objects/label"]) == 2
    assert not {"price", "caption"} & found["11.png"].keys()
    assert run(source, root, **CONFIG)["unchanged"]

    price_of = {uri: record.get("price") for uri, record in found.items()}
    reader = open_dataset("d", root)
    uris = reader.to_arrow(["source_uri"]).to_table()["source_uri"].to_pylist()
    reading: dict[str, Any] = {"batch_size": COUNT, "image_size": 32, "training": False}
    (batch,) = reader.batches("train", features=["price", "objects/label"], **reading)
    read = [None if math.isnan(price) else price for price in batch.features["price"].tolist()]
    assert read == [price_of[uri] for uri in uris]
    export(first, str(tmp_path / "parquet"), "parquet")
    exported = [pq.read_table(path).to_pylist() for path in (tmp_path / "parquet").rglob("*.parquet")]
    assert {row["id"]: row["price"] for part in exported for row in part} == {
        rows(first)[uri]["record_id"]: price for uri, price in price_of.items()
    }

    prices[3] = "77"
    write_table(source, prices)
    second = run(source, root, **CONFIG)
    assert (second["version"], second["num_encoded"]) == (2, 0)
    change = diff(first, catalog.open("d@2")).features_changed
    assert [(each.uri, each.feature) for each in change.examples] == [("3.png", "price")]
    assert records(catalog.open("d@2"))["3.png"]["price"] == 77
    compact(catalog, "d")
    assert verify(catalog.open("d")).problems == []
